// `aerie inspect`: what the files of a model or of a draft head hold, for people or for programs.
#pragma once

#include <iosfwd>
#include <string>

#include "base/status.h"

namespace aerie {

struct InspectOptions {
  bool json = false;     // one JSON object instead of text
  bool tensors = false;  // list every tensor, not just the totals of each type
};

// Of a file, a folder, or what such a name stands for (hub/locate.h). Writes to `out` only if it
// can be read. Long strings and arrays are abbreviated, and nothing in a file's names or values can
// steer a terminal.
Status inspect(const std::string& name, const InspectOptions& options, std::ostream& out);

}  // namespace aerie

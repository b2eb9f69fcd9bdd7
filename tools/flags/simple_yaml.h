// The part of YAML that settings of other programs are written in.
#pragma once

#include <string_view>

#include "base/status.h"
#include "format/json.h"

namespace aerie {

// Mappings by indentation, lists of scalars with dashes, scalars, comments, and JSON's brackets.
// kInvalidArgument, with the line, for everything else.
Expected<Json> parse_simple_yaml(std::string_view text);

}  // namespace aerie

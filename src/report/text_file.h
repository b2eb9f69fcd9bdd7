// Files that a benchmark's flags name.
#pragma once

#include <string>

#include "base/status.h"

namespace aerie {

// All bytes of a regular file of at most 256 MiB. kNotFound, naming `flag` and the path, for what
// cannot be read, kInvalidArgument for a larger file.
Expected<std::string> read_text_file(const std::string& path, const char* flag);

// The same, for a file that holds an API key, without the white space around it. kInvalidArgument
// if there is nothing else.
Expected<std::string> read_key_file(const std::string& path, const char* flag);

}  // namespace aerie

// What stands between the quotes of a string in a tag.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie::jinja {

// With Python's escapes resolved. An unknown escape stays as it is; a broken \x, \u or \U is
// kInvalidData; \N{...} is kUnsupported.
Expected<std::string> unescape(std::string_view text);

}  // namespace aerie::jinja

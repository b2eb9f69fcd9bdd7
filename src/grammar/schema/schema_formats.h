// The formats that are known, as patterns.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace aerie::grammar {

// A pattern for texts of the format, nothing if it is not known. Some valid texts may be missing.
std::optional<std::string> format_pattern(std::string_view format);

}  // namespace aerie::grammar

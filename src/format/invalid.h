// The errors that most of what reads files can give.
#pragma once

#include <fmt/format.h>

#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/text.h"

namespace aerie {

inline Status invalid_data(std::string message) {
  return {StatusCode::kInvalidData, std::move(message)};
}

template <typename... Args>
Status invalid_data(fmt::format_string<Args...> format,
                    Args&&... args) requires(sizeof...(Args) > 0) {
  return invalid_data(fmt::format(format, std::forward<Args>(args)...));
}

// Of a folder that holds several files of a kind where one is wanted.
inline Status several_files(const std::string& folder, std::string_view kind,
                            const std::vector<std::string>& names) {
  return {StatusCode::kInvalidArgument,
          fmt::format("{}: holds several {} files; give one of them: {}", folder, kind,
                      printable(fmt::format("{}", fmt::join(names, ", ")), 300))};
}

}  // namespace aerie

// The error that most of what reads a file can give.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/status.h"

namespace aerie {

inline Status invalid_data(std::string message) {
  return {StatusCode::kInvalidData, std::move(message)};
}

template <typename... Args>
Status invalid_data(fmt::format_string<Args...> format,
                    Args&&... args) requires(sizeof...(Args) > 0) {
  return invalid_data(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace aerie

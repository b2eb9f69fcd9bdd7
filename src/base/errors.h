// Statuses of each code: invalid_argument("no file is named"), not_found("{}: is not there", path).
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/status.h"

namespace aerie {

template <StatusCode kCode>
struct ErrorOf {
  Status operator()(std::string message) const { return {kCode, std::move(message)}; }
  template <typename... Args>
  Status operator()(fmt::format_string<Args...> format, Args&&... args) const
      requires(sizeof...(Args) > 0) {
    return {kCode, fmt::format(format, std::forward<Args>(args)...)};
  }
};

inline constexpr ErrorOf<StatusCode::kInvalidArgument> invalid_argument;
inline constexpr ErrorOf<StatusCode::kNotFound> not_found;
inline constexpr ErrorOf<StatusCode::kInvalidData> invalid_data;
inline constexpr ErrorOf<StatusCode::kUnsupported> not_supported;
inline constexpr ErrorOf<StatusCode::kResourceExhausted> resource_exhausted;
inline constexpr ErrorOf<StatusCode::kInternal> internal_error;

// Status::with_context() of what may be a value.
template <typename T>
Expected<T> in_context(Expected<T> value, const std::string& where) {
  if (value.ok()) return value;
  return value.status().with_context(where);
}

}  // namespace aerie

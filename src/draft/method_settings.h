// From settings as they were written to a method's configuration.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "draft/method.h"

namespace aerie {

// kInvalidArgument: `message`, made one line, behind what it is about.
Status invalid(std::string message);
template <typename... Args>
Status invalid(fmt::format_string<Args...> format, Args&&... args) requires(sizeof...(Args) > 0) {
  return invalid(fmt::format(format, std::forward<Args>(args)...));
}

// The method that this word as "model" means (Method::model_word); null: none.
const Method* find_by_model(std::string_view word);

std::string_view name_of(const Method* method);  // "none" for null
// "method draft_model takes model, num_speculative_tokens"
std::string keys_of(const Method* method);

// The settings of either form, as they were written.
struct Setting {
  std::string key;
  std::optional<std::string> text;  // a string
  std::optional<double> number;
  std::optional<bool> flag;
  bool whole = false;   // whether the number is written as a whole one
  std::string written;  // for messages
};

// Null: plain decoding, which takes no settings. Errors as parse_speculative_json() has them.
Expected<MethodConfig> build_method(const Method* method, std::span<const Setting> settings);

}  // namespace aerie

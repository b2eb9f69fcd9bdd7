#include "server/openai/fields/control_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/errors.h"

namespace aerie::server {

// A mark is the secret, the number of the name, and a semicolon.

ControlNames::ControlNames(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_control(id) && !tokenizer.is_end(id)) continue;
    const std::string_view name = tokenizer.piece(id);
    if (name.size() > 2) names_.emplace_back(name);
  }
  // Of names that begin with one another, the longest.
  std::ranges::sort(names_, [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

bool ControlNames::mark_text(std::string& text, std::string_view secret) const {
  bool any = false;
  for (size_t i = 0; i < names_.size(); ++i) {
    const std::string& name = names_[i];
    size_t at = text.find(name);
    if (at == std::string::npos) continue;
    any = true;
    const std::string mark = fmt::format("{}{};", secret, i);
    std::string out;
    size_t from = 0;
    for (; at != std::string::npos; at = text.find(name, from)) {
      out.append(text, from, at - from).append(mark);
      from = at + name.size();
    }
    text = out.append(text, from);
  }
  return any;
}

bool ControlNames::mark(Json& value, std::string_view secret) const {
  if (value.is_string()) return mark_text(value.get_ref<std::string&>(), secret);
  bool any = false;
  if (value.is_array()) {
    for (Json& inner : value) any |= mark(inner, secret);
  } else if (value.is_object()) {
    Json marked = Json::object();
    for (const auto& [key, inner] : value.items()) {
      std::string name = key;
      any |= mark_text(name, secret);
      any |= mark(inner, secret);
      // As many as a client likes, and none twice: looking for each would take for ever.
      marked.get_ref<Json::object_t&>().emplace_back(std::move(name), std::move(inner));
    }
    value = std::move(marked);
  }
  return any;
}

Status ControlNames::encode(std::string_view text, std::string_view secret,
                            std::vector<int32_t>& ids) const {
  for (;;) {
    const size_t at = secret.empty() ? std::string_view::npos : text.find(secret);
    AERIE_RETURN_IF_ERROR(tokenizer_.encode(text.substr(0, at), {false, true}, ids));
    if (at == std::string_view::npos) return {};
    text.remove_prefix(at + secret.size());
    size_t name = 0;
    const auto number = std::from_chars(text.data(), text.data() + text.size(), name);
    if (number.ec != std::errc() || name >= names_.size()) {
      return invalid_argument(
          "the chat template takes the messages' text apart, and there is a control token's name "
          "in it");
    }
    AERIE_RETURN_IF_ERROR(tokenizer_.encode(names_[name], {false, false}, ids));
    text.remove_prefix(static_cast<size_t>(number.ptr - text.data()));
    if (text.starts_with(';')) text.remove_prefix(1);
  }
}

}  // namespace aerie::server

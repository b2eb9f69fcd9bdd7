#include "tools/run/chat_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <variant>

#include "base/errors.h"
#include "sampling/sampler.h"

namespace aerie {
namespace {

using Place = std::variant<double*, int*, uint64_t*>;

struct Setting {
  const char* name;
  Place (*place)(ChatSettings&);
};

constexpr Setting kSettings[] = {
    {"temperature", [](ChatSettings& s) { return Place(&s.sampling.temperature); }},
    {"top_k", [](ChatSettings& s) { return Place(&s.sampling.top_k); }},
    {"top_p", [](ChatSettings& s) { return Place(&s.sampling.top_p); }},
    {"min_p", [](ChatSettings& s) { return Place(&s.sampling.min_p); }},
    {"repeat_penalty", [](ChatSettings& s) { return Place(&s.sampling.repetition_penalty); }},
    {"frequency_penalty", [](ChatSettings& s) { return Place(&s.sampling.frequency_penalty); }},
    {"presence_penalty", [](ChatSettings& s) { return Place(&s.sampling.presence_penalty); }},
    {"repeat_last_n", [](ChatSettings& s) { return Place(&s.sampling.penalty_window); }},
    {"seed", [](ChatSettings& s) { return Place(&s.sampling.seed); }},
    {"max_tokens", [](ChatSettings& s) { return Place(&s.max_tokens); }},
};

template <typename T>
bool parse(std::string_view text, T& out) {
  const std::string word(text);
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, out);
  return error == std::errc() && rest == end;
}

}  // namespace

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const Setting& setting : kSettings) names.emplace_back(setting.name);
  return names;
}

std::string settings_text(const ChatSettings& settings) {
  ChatSettings copy = settings;
  std::string text;
  for (const Setting& setting : kSettings) {
    std::visit([&](auto* value) { text += fmt::format("  {:<18}{}\n", setting.name, *value); },
               setting.place(copy));
  }
  return text;
}

Status change_setting(std::string_view name, std::string_view value, int vocab,
                      ChatSettings& settings) {
  if (name == "temp") name = "temperature";
  for (const Setting& setting : kSettings) {
    if (name != setting.name) continue;
    ChatSettings changed = settings;
    if (!std::visit([&](auto* place) { return parse(value, *place); }, setting.place(changed))) {
      return invalid_argument("/set {}: '{}' is no number that fits", name, value);
    }
    AERIE_RETURN_IF_ERROR(validate(changed.sampling, vocab));
    if (changed.max_tokens < 0) {
      return invalid_argument("/set max_tokens: give 0 (no limit) or more");
    }
    settings = std::move(changed);
    return {};
  }
  return invalid_argument("/set {}: there is {}", name, fmt::join(setting_names(), ", "));
}

}  // namespace aerie

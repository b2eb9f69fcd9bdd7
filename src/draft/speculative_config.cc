#include "draft/speculative_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace aerie {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kNgramAsModel = "[ngram]";
constexpr int kMaxValue = 64;
constexpr int kDefaultLookupMax = 3;

constexpr std::array<std::pair<DraftMethod, std::string_view>, 3> kMethods = {{
    {DraftMethod::kNone, "none"},
    {DraftMethod::kNgram, "ngram"},
    {DraftMethod::kDraftModel, "draft_model"},
}};

// The whole numbers, all of 1 .. kMaxValue; in the order in which to_string writes them.
struct NumberKey {
  std::string_view name;
  int SpeculativeConfig::*field;
  bool ngram;
  bool draft_model;
};
constexpr std::array<NumberKey, 3> kNumberKeys = {{
    {"prompt_lookup_max", &SpeculativeConfig::prompt_lookup_max, true, false},
    {"prompt_lookup_min", &SpeculativeConfig::prompt_lookup_min, true, false},
    {"num_speculative_tokens", &SpeculativeConfig::num_speculative_tokens, true, true},
}};

Status invalid(std::string message) {
  // Messages quote what the user wrote, and they are one line.
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  return {StatusCode::kInvalidArgument, "speculation settings: " + std::move(message)};
}

std::string_view method_name(DraftMethod method) {
  for (const auto& [value, name] : kMethods) {
    if (value == method) return name;
  }
  return "none";
}

Expected<DraftMethod> parse_method(std::string_view text) {
  for (const auto& [value, name] : kMethods) {
    if (name == text) return value;
  }
  return invalid(fmt::format("unknown method '{}': it is none, ngram or draft_model", text));
}

bool takes(DraftMethod method, const NumberKey& key) {
  return (method == DraftMethod::kNgram && key.ngram) ||
         (method == DraftMethod::kDraftModel && key.draft_model);
}

// "method draft_model takes model, num_speculative_tokens"
std::string keys_of(DraftMethod method) {
  std::vector<std::string_view> names;
  if (method == DraftMethod::kDraftModel) names.push_back("model");
  for (const NumberKey& key : kNumberKeys) {
    if (takes(method, key)) names.push_back(key.name);
  }
  return fmt::format("method {} takes {}", method_name(method),
                     names.empty() ? "no keys" : fmt::format("{}", fmt::join(names, ", ")));
}

bool is_known_key(std::string_view key) {
  if (key == "model") return true;
  for (const NumberKey& number : kNumberKeys) {
    if (number.name == key) return true;
  }
  return false;
}

Status wrong_key(DraftMethod method, std::string_view key) {
  if (is_known_key(key)) {
    return invalid(fmt::format("'{}' does not go with method {}: {}", key, method_name(method),
                               keys_of(method)));
  }
  return invalid(fmt::format("unknown key '{}': {}", key, keys_of(method)));
}

Status out_of_range(std::string_view key, std::string_view value) {
  return invalid(fmt::format("'{}' must be 1 to {}, not {}", key, kMaxValue, value));
}

// The settings of either form, as they were written.
struct Setting {
  std::string key;
  std::optional<std::string> text;  // a string
  std::optional<int64_t> number;    // a whole number; clamped, which is out of range all the same
  std::string written;              // for messages
};

Status set_model(const Setting& setting, SpeculativeConfig& config) {
  if (!setting.text) {
    return invalid(fmt::format("'model' must be a string, not {}", setting.written));
  }
  if (config.method == DraftMethod::kNgram) {
    if (*setting.text == kNgramAsModel) return {};
    return wrong_key(config.method, "model");
  }
  if (config.method != DraftMethod::kDraftModel) return wrong_key(config.method, "model");
  if (setting.text->empty()) return invalid("'model' is empty: it must be the draft model's file");
  if (*setting.text == kNgramAsModel) {
    return invalid("'model' [ngram] does not go with method draft_model: give the model's file");
  }
  if (setting.text->find('\0') != std::string::npos) {
    return invalid("'model' holds a zero byte: it must be the draft model's file");
  }
  config.model = *setting.text;
  return {};
}

Status set(const Setting& setting, SpeculativeConfig& config) {
  if (setting.key == "model") return set_model(setting, config);
  for (const NumberKey& key : kNumberKeys) {
    if (key.name != setting.key) continue;
    if (!takes(config.method, key)) return wrong_key(config.method, key.name);
    if (!setting.number) {
      return invalid(fmt::format("'{}' must be a whole number, not {}", key.name, setting.written));
    }
    if (*setting.number < 1 || *setting.number > kMaxValue) {
      return out_of_range(key.name, setting.written);
    }
    config.*key.field = static_cast<int>(*setting.number);
    return {};
  }
  return wrong_key(config.method, setting.key);
}

Expected<SpeculativeConfig> build(DraftMethod method, std::span<const Setting> settings) {
  SpeculativeConfig config;
  config.method = method;
  for (const Setting& setting : settings) AERIE_RETURN_IF_ERROR(set(setting, config));
  if (method == DraftMethod::kDraftModel && config.model.empty()) {
    return invalid("method draft_model needs 'model', the draft model's file");
  }
  const bool max_given = config.prompt_lookup_max != 0;
  const int longest = max_given ? config.prompt_lookup_max : kDefaultLookupMax;
  if (config.prompt_lookup_min > longest) {
    return invalid(fmt::format("'prompt_lookup_min' {} is above 'prompt_lookup_max' {}{}",
                               config.prompt_lookup_min, longest,
                               max_given ? "" : ", its default: set that too"));
  }
  return config;
}

// --- JSON -------------------------------------------------------------------------------------

// As written, cut to what fits in a message.
std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string text = value.dump();
  constexpr size_t kLongest = 60;
  if (text.size() <= kLongest) return text;
  return value.is_string() ? "a string" : text.substr(0, kLongest) + "...";
}

Setting from_json(const std::string& key, const Json& value) {
  Setting setting{key, std::nullopt, std::nullopt, shown(value)};
  if (value.is_string()) {
    setting.text = value.get<std::string>();
  } else if (value.is_number_unsigned()) {
    // Clamped, since a cast could bring a huge number back into the range.
    setting.number = static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), INT32_MAX));
  } else if (value.is_number_integer()) {
    setting.number = value.get<int64_t>();
  }
  return setting;
}

Expected<Json> parse_object(std::string_view text) {
  std::set<std::string> seen;
  std::string twice;
  const auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!seen.insert(key).second) twice = key;
    }
    return true;
  };
  try {
    Json json = Json::parse(text, callback);
    if (!json.is_object()) return invalid("the JSON must be an object, not " + shown(json));
    if (!twice.empty()) return invalid(fmt::format("'{}' is given twice", twice));
    return json;
  } catch (const Json::parse_error& error) {
    return invalid(fmt::format("not valid JSON at byte {}", error.byte));
  } catch (const std::exception& error) {
    return invalid(fmt::format("not valid JSON: {}", error.what()));
  }
}

Expected<DraftMethod> method_from_json(const Json& json) {
  if (const auto method = json.find("method"); method != json.end()) {
    if (!method->is_string()) {
      return invalid("'method' must be a string, not " + shown(*method));
    }
    return parse_method(method->get_ref<const std::string&>());
  }
  const auto model = json.find("model");
  if (model == json.end()) {
    return invalid(
        "no method: give 'method' (none, ngram or draft_model) or 'model' (the draft model's "
        "file)");
  }
  return *model == kNgramAsModel ? DraftMethod::kNgram : DraftMethod::kDraftModel;
}

// --- The short form ---------------------------------------------------------------------------

// The items between commas. "\," is a comma of the item and "\\" a backslash, so that every file
// name can be written.
std::vector<std::string> split_items(std::string_view text) {
  std::vector<std::string> items(1);
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == ',' || text[i + 1] == '\\');
    if (escape) {
      items.back() += text[++i];
    } else if (text[i] == ',') {
      items.emplace_back();
    } else {
      items.back() += text[i];
    }
  }
  return items;
}

std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == ',' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

Setting from_text(const std::string& key, const std::string& value) {
  Setting setting{key, value, std::nullopt, fmt::format("'{}'", value)};
  int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (stop != end || value.empty()) return setting;
  // All digits, but too many of them.
  if (error == std::errc::result_out_of_range) number = INT32_MAX;
  setting.number = number;
  return setting;
}

Expected<std::vector<Setting>> parse_items(DraftMethod method, std::string_view text) {
  std::vector<Setting> settings;
  for (const std::string& item : split_items(text)) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0) {
      return invalid(fmt::format("'{}' is not of the form key=value: {}", item, keys_of(method)));
    }
    const std::string key = item.substr(0, equals);
    if (equals + 1 == item.size()) return invalid(fmt::format("'{}' has an empty value", key));
    for (const Setting& before : settings) {
      if (before.key == key) return invalid(fmt::format("'{}' is given twice", key));
    }
    settings.push_back(from_text(key, item.substr(equals + 1)));
  }
  return settings;
}

}  // namespace

int SpeculativeConfig::tokens() const {
  if (num_speculative_tokens > 0) return num_speculative_tokens;
  switch (method) {
    case DraftMethod::kNone:
      return 0;
    case DraftMethod::kNgram:
      return 10;
    case DraftMethod::kDraftModel:
      return 5;
  }
  return 0;
}

Expected<SpeculativeConfig> parse_speculative_json(std::string_view json) {
  AERIE_ASSIGN_OR_RETURN(const Json object, parse_object(json));
  AERIE_ASSIGN_OR_RETURN(const DraftMethod method, method_from_json(object));
  std::vector<Setting> settings;
  for (const auto& [key, value] : object.items()) {
    if (key != "method") settings.push_back(from_json(key, value));
  }
  return build(method, settings);
}

Expected<SpeculativeConfig> parse_speculative_spec(std::string_view spec) {
  const size_t colon = spec.find(':');
  AERIE_ASSIGN_OR_RETURN(const DraftMethod method, parse_method(spec.substr(0, colon)));
  if (colon == std::string_view::npos) return build(method, {});
  AERIE_ASSIGN_OR_RETURN(const std::vector<Setting> settings,
                         parse_items(method, spec.substr(colon + 1)));
  return build(method, settings);
}

std::string to_string(const SpeculativeConfig& config) {
  std::vector<std::string> items;
  if (!config.model.empty()) items.push_back("model=" + escaped(config.model));
  for (const NumberKey& key : kNumberKeys) {
    if (const int value = config.*key.field; value != 0) {
      items.push_back(fmt::format("{}={}", key.name, value));
    }
  }
  std::string text(method_name(config.method));
  if (!items.empty()) text += fmt::format(":{}", fmt::join(items, ","));
  return text;
}

}  // namespace aerie

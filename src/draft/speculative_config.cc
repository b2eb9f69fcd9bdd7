#include "draft/speculative_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "draft/method_settings.h"

namespace aerie {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostMethods = 8;

// "none, auto, ngram or draft_model"
std::string method_names() {
  std::string names = fmt::format("{}, {}", kPlainWord, kAutoWord);
  for (size_t i = 0; i < methods().size(); ++i) {
    names += i + 1 == methods().size() ? " or " : ", ";
    names += methods()[i]->name;
  }
  return names;
}

// Null for plain decoding.
Expected<const Method*> parse_method(std::string_view text) {
  if (text == kPlainWord) return nullptr;
  if (text == kAutoWord) {
    return invalid(
        "'auto' takes no settings of its own and comes first: give auto or auto,METHOD:..., as "
        "JSON "
        R"({"method": "auto"} or {"combine": "auto", "methods": [...]})");
  }
  if (const Method* method = find_method(text)) return method;
  return invalid("unknown method '{}': it is {}", text, method_names());
}

Status add(MethodConfig&& method, SpeculativeConfig& config, bool alone) {
  if (method.method == nullptr) {
    if (alone) return {};
    return invalid("'none' is plain decoding: it does not go with other methods");
  }
  if (config.methods.size() == kMostMethods) return invalid("more than {} methods", kMostMethods);
  config.methods.push_back(std::move(method));
  return {};
}

MethodConfig config_in_auto(const Method& method) {
  MethodConfig config = {&method, {}, {}};
  for (const auto& [key, value] : method.in_auto.numbers) config.numbers[std::string(key)] = value;
  return config;
}

// What "auto" has unless its methods are named: wide and deep, since the controller cuts what does
// not pay, and nodes that are not verified cost microseconds.
std::vector<MethodConfig> auto_methods() {
  std::vector<const Method*> chosen;
  std::ranges::copy_if(methods(), std::back_inserter(chosen),
                       [](const Method* method) { return method->in_auto.place > 0; });
  std::ranges::stable_sort(chosen, {}, [](const Method* method) { return method->in_auto.place; });
  std::vector<MethodConfig> all;
  for (const Method* method : chosen) all.push_back(config_in_auto(*method));
  return all;
}

// auto_methods() that are not in `config`, before its own.
Expected<SpeculativeConfig> with_auto(SpeculativeConfig config) {
  config.combination = Combination::kAuto;
  for (const MethodConfig& method : config.methods) {
    if (!method.numbers.contains(kGateKey.name)) continue;
    return invalid("'{}' does not go with auto, which decides by itself what pays", kGateKey.name);
  }
  std::vector<MethodConfig> all = auto_methods();
  std::erase_if(all, [&](const MethodConfig& fallback) {
    return std::ranges::any_of(
        config.methods, [&](const MethodConfig& own) { return own.method == fallback.method; });
  });
  std::move(config.methods.begin(), config.methods.end(), std::back_inserter(all));
  config.methods = std::move(all);
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
  Setting setting;
  setting.key = key;
  setting.whole = value.is_number_integer();
  setting.written = shown(value);
  if (value.is_boolean()) setting.flag = value.get<bool>();
  if (value.is_string()) setting.text = value.get<std::string>();
  if (value.is_number()) setting.number = value.get<double>();
  return setting;
}

Expected<Json> parse_any(std::string_view text) {
  std::vector<std::set<std::string>> seen;  // keys of the objects that are open, by depth
  std::string twice;
  const auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const auto level = static_cast<size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      if (seen.size() <= level) seen.resize(level + 1);
      seen[level].clear();
    } else if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!seen[level - 1].insert(key).second) twice = key;
    }
    return true;
  };
  try {
    Json json = Json::parse(text, callback);
    if (!twice.empty()) return invalid("'{}' is given twice", twice);
    return json;
  } catch (const Json::parse_error& error) {
    return invalid("not valid JSON at byte {}", error.byte);
  } catch (const std::exception& error) {
    return invalid("not valid JSON: {}", error.what());
  }
}

Expected<const Method*> method_from_json(const Json& json) {
  if (const auto method = json.find("method"); method != json.end()) {
    if (!method->is_string()) return invalid("'method' must be a string, not " + shown(*method));
    return parse_method(method->get_ref<const std::string&>());
  }
  const auto model = json.find(kModelKey);
  if (model == json.end()) {
    return invalid("no method: give 'method' ({}) or 'model' (the draft model's file)",
                   method_names());
  }
  if (model->is_string()) {
    if (const Method* method = find_by_model(model->get_ref<const std::string&>())) return method;
  }
  return *std::ranges::find_if(methods(), [](const Method* method) { return method->of_model; });
}

Status add_object(const Json& object, SpeculativeConfig& config, bool alone) {
  if (!object.is_object()) return invalid("a method must be an object, not " + shown(object));
  AERIE_ASSIGN_OR_RETURN(const Method* const method, method_from_json(object));
  std::vector<Setting> settings;
  for (const auto& [key, value] : object.items()) {
    if (key != "method") settings.push_back(from_json(key, value));
  }
  AERIE_ASSIGN_OR_RETURN(MethodConfig built, build_method(method, settings));
  return add(std::move(built), config, alone);
}

Expected<SpeculativeConfig> from_list(const Json& list, Combination combination) {
  if (list.empty()) return invalid("the list of methods is empty");
  SpeculativeConfig config;
  config.combination = combination;
  for (const Json& object : list) {
    AERIE_RETURN_IF_ERROR(add_object(object, config, false));
  }
  return config;
}

Expected<SpeculativeConfig> from_combination(const Json& json) {
  for (const auto& [key, value] : json.items()) {
    if (key != "combine" && key != "methods") {
      return invalid("unknown key '{}' beside 'methods': there is only 'combine'", key);
    }
  }
  const auto combine = json.find("combine");
  Combination combination = Combination::kFirst;
  if (combine != json.end() && *combine == kMergeWord) {
    combination = Combination::kMerge;
  } else if (combine != json.end() && *combine == kAutoWord) {
    combination = Combination::kAuto;
  } else if (combine != json.end() && *combine != kFirstWord) {
    return invalid(R"('combine' must be "first", "merge" or "auto", not )" + shown(*combine));
  }
  if (!json["methods"].is_array()) {
    return invalid("'methods' must be a list, not " + shown(json["methods"]));
  }
  AERIE_ASSIGN_OR_RETURN(SpeculativeConfig config, from_list(json["methods"], combination));
  if (combination == Combination::kAuto) return with_auto(std::move(config));
  return config;
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
  Setting setting;
  setting.key = key;
  setting.text = value;
  setting.written = fmt::format("'{}'", value);
  double number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (stop != end || value.empty() || error != std::errc()) return setting;
  setting.number = number;
  const size_t digits = value.find_first_not_of("0123456789", value[0] == '-' ? 1 : 0);
  setting.whole = digits == std::string::npos;
  return setting;
}

// A method is named where an item is no setting: "ngram", "draft_model:model=...".
bool names_method(const std::string& item) {
  const size_t colon = item.find(':');
  return item.find('=') == std::string::npos ||
         (colon != std::string::npos && colon < item.find('='));
}

Expected<Setting> parse_item(const Method* method, const std::string& item) {
  const size_t equals = item.find('=');
  if (equals == std::string::npos || equals == 0) {
    return invalid("'{}' is not of the form key=value: {}", item, keys_of(method));
  }
  const std::string key = item.substr(0, equals);
  if (equals + 1 == item.size()) return invalid("'{}' has an empty value", key);
  return from_text(key, item.substr(equals + 1));
}

// One method of the short form, from the item that names it on.
class SpecReader {
 public:
  explicit SpecReader(std::vector<std::string> items) : items_(std::move(items)) {}

  bool done() const { return next_ == items_.size(); }
  bool take(std::string_view word) {
    if (items_[next_] != word) return false;
    ++next_;
    return true;
  }
  Expected<MethodConfig> read() {
    const std::string& first = items_[next_++];
    const size_t colon = first.find(':');
    AERIE_ASSIGN_OR_RETURN(const Method* const method, parse_method(first.substr(0, colon)));
    std::vector<Setting> settings;
    if (colon != std::string::npos) {
      AERIE_RETURN_IF_ERROR(read_item(method, first.substr(colon + 1), settings));
      while (!done() && !(names_method(items_[next_]) && is_method(items_[next_]))) {
        AERIE_RETURN_IF_ERROR(read_item(method, items_[next_++], settings));
      }
    }
    return build_method(method, settings);
  }

 private:
  static bool is_method(const std::string& item) {
    const std::string name = item.substr(0, item.find(':'));
    return name == kPlainWord || find_method(name) != nullptr;
  }
  static Status read_item(const Method* method, const std::string& item,
                          std::vector<Setting>& settings) {
    AERIE_ASSIGN_OR_RETURN(Setting setting, parse_item(method, item));
    for (const Setting& before : settings) {
      if (before.key == setting.key) return invalid("'{}' is given twice", setting.key);
    }
    settings.push_back(std::move(setting));
    return {};
  }

  std::vector<std::string> items_;
  size_t next_ = 0;
};

std::string to_string(const MethodConfig& config) {
  std::vector<std::string> items;
  const auto add = [&](const MethodKey& key) {
    if (const auto text = config.texts.find(key.name); text != config.texts.end()) {
      items.push_back(fmt::format("{}={}", key.name, escaped(text->second)));
    }
    if (const auto number = config.numbers.find(key.name); number != config.numbers.end()) {
      items.push_back(fmt::format("{}={}", key.name, number->second));
    }
  };
  for (const MethodKey& key : config.method->keys) add(key);
  add(kGateKey);
  std::string text(config.method->name);
  if (!items.empty()) text += fmt::format(":{}", fmt::join(items, ","));
  return text;
}

}  // namespace

int SpeculativeConfig::tokens() const {
  int most = 0;
  for (const MethodConfig& method : methods) {
    most = combination == Combination::kMerge ? most + method.tokens()
                                              : std::max(most, method.tokens());
  }
  return most;
}

bool SpeculativeConfig::gives_tokens() const {
  return std::ranges::any_of(
      methods, [](const MethodConfig& method) { return method.numbers.contains(kTokensKey); });
}

void SpeculativeConfig::set_tokens(int tokens) {
  for (MethodConfig& method : methods) method.numbers[std::string(kTokensKey)] = tokens;
}

bool SpeculativeConfig::gated() const {
  return enabled() && combination != Combination::kAuto &&
         std::ranges::all_of(
             methods, [](const MethodConfig& method) { return method.whole(kGateKey.name) != 0; });
}

void SpeculativeConfig::open_gate() {
  const bool said = std::ranges::any_of(
      methods, [](const MethodConfig& method) { return method.numbers.contains(kGateKey.name); });
  if (said || combination == Combination::kAuto) return;
  for (MethodConfig& method : methods) method.numbers[std::string(kGateKey.name)] = 0;
}

SpeculativeConfig SpeculativeConfig::with_default_gate() const {
  SpeculativeConfig config = *this;
  for (MethodConfig& method : config.methods) method.numbers.erase(std::string(kGateKey.name));
  return config;
}

bool SpeculativeConfig::set_draft_type(std::string_view type) {
  bool any = false;
  for (MethodConfig& method : methods) {
    if (method.method->find(kDraftTypeKey) == nullptr) continue;
    method.texts.try_emplace(std::string(kDraftTypeKey), type);
    any = true;
  }
  return any;
}

Expected<SpeculativeConfig> parse_speculative_json(std::string_view text) {
  AERIE_ASSIGN_OR_RETURN(const Json json, parse_any(text));
  if (json.is_array()) return from_list(json, Combination::kFirst);
  if (!json.is_object()) {
    return invalid("the JSON must be an object or a list of objects, not " + shown(json));
  }
  if (json.contains("methods")) return from_combination(json);
  if (json.size() == 1 && json.contains("method") && json["method"] == kAutoWord) {
    return auto_speculation();
  }
  SpeculativeConfig config;
  AERIE_RETURN_IF_ERROR(add_object(json, config, true));
  return config;
}

Expected<SpeculativeConfig> parse_speculative_spec(std::string_view spec) {
  SpecReader reader(split_items(spec));
  SpeculativeConfig config;
  const bool is_auto = reader.take(kAutoWord);
  if (!is_auto && reader.take(kMergeWord)) {
    config.combination = Combination::kMerge;
    if (reader.done()) return invalid("'merge' is followed by the methods to merge");
  }
  while (!reader.done()) {
    const bool first =
        config.methods.empty() && config.combination == Combination::kFirst && !is_auto;
    AERIE_ASSIGN_OR_RETURN(MethodConfig method, reader.read());
    AERIE_RETURN_IF_ERROR(add(std::move(method), config, first && reader.done()));
  }
  if (is_auto) return with_auto(std::move(config));
  return config;
}

SpeculativeConfig auto_speculation() {
  return with_auto({}).value();
}

std::string to_string(const SpeculativeConfig& config) {
  std::vector<std::string> texts;
  if (config.combination == Combination::kMerge) texts.emplace_back(kMergeWord);
  if (config.combination == Combination::kAuto) texts.emplace_back(kAutoWord);
  std::vector<MethodConfig> implied;
  if (config.combination == Combination::kAuto) implied = auto_methods();
  for (const MethodConfig& method : config.methods) {
    if (std::ranges::find(implied, method) != implied.end()) continue;
    texts.push_back(to_string(method));
  }
  return texts.empty() ? std::string(kPlainWord) : fmt::format("{}", fmt::join(texts, ","));
}

}  // namespace aerie

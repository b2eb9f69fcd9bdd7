#include "draft/method_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace aerie {
namespace {

Status wrong_key(const Method* method, std::string_view key) {
  if (is_method_key(key)) {
    return invalid("'{}' does not go with method {}: {}", key, name_of(method), keys_of(method));
  }
  return invalid("unknown key '{}': {}", key, keys_of(method));
}

// So that a key and its alias are not both given.
Status check_once(const MethodKey& key, const Setting& setting, const MethodConfig& config) {
  if (!config.texts.contains(key.name) && !config.numbers.contains(key.name)) return {};
  return invalid("'{}' says again what '{}' says", setting.key, key.name);
}

Status set_text(const MethodKey& key, const Setting& setting, MethodConfig& config) {
  if (!setting.text) {
    return invalid("'{}' must be a string, not {}", key.name, setting.written);
  }
  if (setting.text->empty()) {
    return invalid("'{}' is empty: it must be {}", key.name, key.what);
  }
  if (find_by_model(*setting.text) != nullptr) {
    return invalid("'{}' {} does not go with method {}: it must be {}", key.name, *setting.text,
                   config.method->name, key.what);
  }
  if (setting.text->find('\0') != std::string::npos) {
    return invalid("'{}' holds a zero byte: it must be {}", key.name, key.what);
  }
  config.texts[std::string(key.name)] = *setting.text;
  return {};
}

Status set_number(const MethodKey& key, const Setting& setting, double added,
                  MethodConfig& config) {
  const bool whole = key.kind == MethodKey::Kind::kWhole;
  if (!setting.number || (whole && !setting.whole)) {
    return invalid("'{}' must be a {}, not {}", setting.key, whole ? "whole number" : "number",
                   setting.written);
  }
  // So that NaN is out of range, too.
  const double number = *setting.number + added;
  if (!(number >= key.least && number <= key.most)) {
    return invalid("'{}' must be {} to {}, not {}", setting.key, key.least - added,
                   key.most - added, setting.written);
  }
  config.numbers[std::string(key.name)] = number;
  return {};
}

Status set_flag(const MethodKey& key, const Setting& setting, MethodConfig& config) {
  std::optional<bool> flag = setting.flag;
  if (setting.text == "true" || setting.number == 1.0) flag = true;
  if (setting.text == "false" || setting.number == 0.0) flag = false;
  if (!flag) {
    return invalid("'{}' must be true or false, not {}", key.name, setting.written);
  }
  config.numbers[std::string(key.name)] = *flag ? 1.0 : 0.0;
  return {};
}

Status set(const Setting& setting, MethodConfig& config) {
  // vLLM's way to name a method.
  if (config.method != nullptr && setting.key == kModelKey && setting.text &&
      find_by_model(*setting.text) == config.method) {
    return {};
  }
  const MethodAlias* alias =
      config.method == nullptr ? nullptr : config.method->find_alias(setting.key);
  const MethodKey* key = config.method == nullptr
                             ? nullptr
                             : config.method->find(alias == nullptr ? setting.key : alias->key);
  if (key == nullptr) {
    if (setting.key == kModelKey && !setting.text) {
      return invalid("'model' must be a string, not {}", setting.written);
    }
    return wrong_key(config.method, setting.key);
  }
  AERIE_RETURN_IF_ERROR(check_once(*key, setting, config));
  switch (key->kind) {
    case MethodKey::Kind::kText:
      return set_text(*key, setting, config);
    case MethodKey::Kind::kFlag:
      return set_flag(*key, setting, config);
    case MethodKey::Kind::kWhole:
    case MethodKey::Kind::kFraction:
      break;
  }
  return set_number(*key, setting, alias == nullptr ? 0.0 : alias->added, config);
}

}  // namespace

Status invalid(std::string message) {
  // Messages quote what the user wrote, and they are one line.
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  return invalid_argument("speculation settings: {}", std::move(message));
}

const Method* find_by_model(std::string_view word) {
  if (word.empty()) return nullptr;
  const auto found = std::ranges::find_if(
      methods(), [&](const Method* method) { return method->model_word == word; });
  return found == methods().end() ? nullptr : *found;
}

std::string_view name_of(const Method* method) {
  return method == nullptr ? kPlainWord : method->name;
}

std::string keys_of(const Method* method) {
  std::vector<std::string_view> names;
  if (method != nullptr) {
    for (const MethodKey& key : method->keys) names.push_back(key.name);
    names.push_back(kGateKey.name);
  }
  return fmt::format("method {} takes {}", name_of(method),
                     names.empty() ? "no keys" : fmt::format("{}", fmt::join(names, ", ")));
}

Expected<MethodConfig> build_method(const Method* method, std::span<const Setting> settings) {
  MethodConfig config;
  config.method = method;
  for (const Setting& setting : settings) AERIE_RETURN_IF_ERROR(set(setting, config));
  if (method == nullptr) return config;
  for (const MethodKey& key : method->keys) {
    if (key.required && !config.texts.contains(key.name)) {
      return invalid("method {} needs '{}', {}", method->name, key.name, key.what);
    }
  }
  if (method->check != nullptr) AERIE_RETURN_IF_ERROR(method->check(config));
  return config;
}

}  // namespace aerie

#include "draft/method_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "draft/tree/static_tree.h"
#include "tensor/quantize.h"

namespace aerie {
namespace {

constexpr std::string_view kNone = "none";
constexpr std::string_view kNgram = "ngram";
constexpr std::string_view kModel = "model";
constexpr std::string_view kNgramAsModel = "[ngram]";

Status wrong_key(const Method* method, std::string_view key) {
  if (is_method_key(key)) {
    return invalid(
        fmt::format("'{}' does not go with method {}: {}", key, name_of(method), keys_of(method)));
  }
  return invalid(fmt::format("unknown key '{}': {}", key, keys_of(method)));
}

// So that a key and its alias are not both given.
Status check_once(const MethodKey& key, const Setting& setting, const MethodConfig& config) {
  if (!config.texts.contains(key.name) && !config.numbers.contains(key.name)) return {};
  return invalid(fmt::format("'{}' says again what '{}' says", setting.key, key.name));
}

Status set_text(const MethodKey& key, const Setting& setting, MethodConfig& config) {
  if (!setting.text) {
    return invalid(fmt::format("'{}' must be a string, not {}", key.name, setting.written));
  }
  if (setting.text->empty()) {
    return invalid(fmt::format("'{}' is empty: it must be {}", key.name, key.what));
  }
  if (*setting.text == kNgramAsModel) {
    return invalid(fmt::format("'{}' {} does not go with method {}: it must be {}", key.name,
                               kNgramAsModel, config.method->name, key.what));
  }
  if (setting.text->find('\0') != std::string::npos) {
    return invalid(fmt::format("'{}' holds a zero byte: it must be {}", key.name, key.what));
  }
  config.texts[std::string(key.name)] = *setting.text;
  return {};
}

Status set_number(const MethodKey& key, const Setting& setting, double added,
                  MethodConfig& config) {
  const bool whole = key.kind == MethodKey::Kind::kWhole;
  if (!setting.number || (whole && !setting.whole)) {
    return invalid(fmt::format("'{}' must be a {}, not {}", setting.key,
                               whole ? "whole number" : "number", setting.written));
  }
  // So that NaN is out of range, too.
  const double number = *setting.number + added;
  if (!(number >= key.least && number <= key.most)) {
    return invalid(fmt::format("'{}' must be {} to {}, not {}", setting.key, key.least - added,
                               key.most - added, setting.written));
  }
  config.numbers[std::string(key.name)] = number;
  return {};
}

Status set_flag(const MethodKey& key, const Setting& setting, MethodConfig& config) {
  std::optional<bool> flag = setting.flag;
  if (setting.text == "true" || setting.number == 1.0) flag = true;
  if (setting.text == "false" || setting.number == 0.0) flag = false;
  if (!flag) {
    return invalid(fmt::format("'{}' must be true or false, not {}", key.name, setting.written));
  }
  config.numbers[std::string(key.name)] = *flag ? 1.0 : 0.0;
  return {};
}

Status set(const Setting& setting, MethodConfig& config) {
  // vLLM's way to say ngram.
  if (config.method != nullptr && config.method->name == kNgram && setting.key == kModel &&
      setting.text == kNgramAsModel) {
    return {};
  }
  const MethodAlias* alias =
      config.method == nullptr ? nullptr : config.method->find_alias(setting.key);
  const MethodKey* key = config.method == nullptr
                             ? nullptr
                             : config.method->find(alias == nullptr ? setting.key : alias->key);
  if (key == nullptr) {
    if (setting.key == kModel && !setting.text) {
      return invalid(fmt::format("'model' must be a string, not {}", setting.written));
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

Status check_lookup(const MethodConfig& config) {
  if (config.method->find("prompt_lookup_min") == nullptr) return {};
  const int least = config.whole("prompt_lookup_min"), most = config.whole("prompt_lookup_max");
  if (least <= most) return {};
  const bool given = config.numbers.contains("prompt_lookup_max");
  return invalid(fmt::format("'prompt_lookup_min' {} is above 'prompt_lookup_max' {}{}", least,
                             most, given ? "" : ", its default: set that too"));
}

// A shape brings its number of nodes along.
Status check_tree(MethodConfig& config) {
  const auto given = config.texts.find(kTreeKey);
  if (given == config.texts.end()) return {};
  const StaticTree* tree = find_static_tree(given->second);
  if (tree == nullptr) {
    return invalid(fmt::format("'{}' must be {}, not '{}'", kTreeKey,
                               fmt::join(static_tree_names(), " or "), given->second));
  }
  config.numbers.try_emplace(std::string(kTokensKey), tree->size());
  return {};
}

Status check_draft_type(const MethodConfig& config) {
  const auto given = config.texts.find(kDraftTypeKey);
  if (given == config.texts.end()) return {};
  const std::optional<DType> type = dtype_from_name(given->second);
  if (type && can_quantize(*type)) return {};
  return invalid(fmt::format("'{}' must be one of {}, not '{}'", kDraftTypeKey, quantizable_types(),
                             given->second));
}

Status check_vocabulary(const MethodConfig& config) {
  const auto given = config.texts.find(kVocabularyKey);
  if (given == config.texts.end() || std::ranges::count(kVocabularyMatches, given->second) > 0) {
    return {};
  }
  return invalid(fmt::format("'{}' must be {}, not '{}'", kVocabularyKey,
                             fmt::join(kVocabularyMatches, " or "), given->second));
}

}  // namespace

Status invalid(std::string message) {
  // Messages quote what the user wrote, and they are one line.
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  return {StatusCode::kInvalidArgument, "speculation settings: " + std::move(message)};
}

std::string_view name_of(const Method* method) {
  return method == nullptr ? kNone : method->name;
}

std::string keys_of(const Method* method) {
  std::vector<std::string_view> names;
  if (method != nullptr) {
    for (const MethodKey& key : method->keys) names.push_back(key.name);
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
      return invalid(fmt::format("method {} needs '{}', {}", method->name, key.name, key.what));
    }
  }
  AERIE_RETURN_IF_ERROR(check_lookup(config));
  AERIE_RETURN_IF_ERROR(check_tree(config));
  AERIE_RETURN_IF_ERROR(check_vocabulary(config));
  AERIE_RETURN_IF_ERROR(check_draft_type(config));
  return config;
}

}  // namespace aerie

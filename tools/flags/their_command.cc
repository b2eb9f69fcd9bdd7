#include "tools/flags/their_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/errors.h"
#include "base/flag_values.h"
#include "format/json.h"
#include "tools/flags/simple_yaml.h"
#include "tools/flags/their_flags.h"
#include "tools/flags/their_speculation.h"

namespace aerie {
namespace {

constexpr const char* kConfigFlag = "--speculative-config";

// "--max_model_len" is "--max-model-len"; values stay.
std::string with_dashes(std::string name) {
  if (name.starts_with("--")) std::ranges::replace(name, '_', '-');
  return name;
}

// A number, a word or JSON, as a value.
Json json_of(const std::string& text) {
  Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? Json(text) : value;
}

// "32k" and "32K" are 32000 and 32768, as vLLM has them; other texts stay.
std::string counted(const std::string& text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  constexpr int64_t kMost = 1 << 30;
  if (error != std::errc() || rest + 1 != end || number < 0 || number > kMost) return text;
  switch (*rest) {
    case 'k':
      return std::to_string(number * 1000);
    case 'K':
      return std::to_string(number * 1024);
    case 'm':
      return std::to_string(number * 1000000);
    case 'M':
      return std::to_string(number << 20);
    default:
      return text;
  }
}

class Translator {
 public:
  Translator(const CLI::App& app, std::span<const TheirFlag> theirs, std::vector<std::string> words)
      : app_(app), theirs_(theirs), words_(std::move(words)) {}

  Expected<OurCommand> translate() {
    AERIE_RETURN_IF_ERROR(expand_files());
    for (at_ = 0; at_ < words_.size(); ++at_) {
      if (words_[at_] == "--") {
        out_.words.insert(out_.words.end(), words_.begin() + static_cast<ptrdiff_t>(at_),
                          words_.end());
        break;
      }
      AERIE_RETURN_IF_ERROR(take());
    }
    AERIE_RETURN_IF_ERROR(close());
    return std::move(out_);
  }

 private:
  const CLI::Option* own(const std::string& name) const {
    const bool is_short = name.size() == 2 && name[0] == '-' && name[1] != '-';
    return is_short || name.starts_with("--") ? app_.get_option_no_throw(name) : nullptr;
  }

  // The value of the flag at at_, which is `name`.
  Expected<std::string> value_of(const std::string& name,
                                 const std::optional<std::string>& joined) {
    if (joined) return *joined;
    if (at_ + 1 == words_.size()) return invalid_argument("{} needs a value", name);
    return words_[++at_];
  }

  Status take() {
    const std::string word = words_[at_];
    if (word.size() < 2 || word[0] != '-') {
      out_.words.push_back(word);
      return {};
    }
    const size_t equals = word.find('=');
    const std::string name = with_dashes(word.substr(0, equals));
    std::optional<std::string> joined;
    if (equals != std::string::npos) joined = word.substr(equals + 1);
    if (name == "-sc" || name == kConfigFlag || name.starts_with("--speculative-config.")) {
      AERIE_ASSIGN_OR_RETURN(const std::string value, value_of(name, joined));
      return take_config(name, value);
    }
    if (const CLI::Option* option = own(name)) return take_own(name, joined, *option);
    if (const TheirFlag* flag = find_their_flag(theirs_, name))
      return take_theirs(name, joined, *flag);
    if (name.starts_with("--")) return unknown(name);
    out_.words.push_back(word);
    return {};
  }

  Status unknown(const std::string& name) const {
    std::vector<std::string> names = names_in(app_, false);
    for (const TheirFlag& flag : theirs_) {
      for (std::string_view list = flag.names; !list.empty();) {
        const size_t comma = std::min(list.find(','), list.size());
        names.emplace_back(list.substr(0, comma));
        list.remove_prefix(std::min(list.size(), comma + 1));
      }
    }
    std::string path = app_.get_name();
    for (const CLI::App* above = app_.get_parent(); above != nullptr; above = above->get_parent()) {
      path = fmt::format("{} {}", above->get_name(), path);
    }
    return invalid_argument("{}: there is no flag {}{}; see {} --help-all", path, name,
                            did_you_mean(name, names), path);
  }

  // {"method": ...}, or one key of it.
  Status take_config(const std::string& name, const std::string& value) {
    if (const size_t dot = name.find('.'); dot != std::string::npos) {
      std::string key = name.substr(dot + 1);
      std::ranges::replace(key, '-', '_');
      draft_[key] = json_of(value);
      return {};
    }
    const Json config = Json::parse(value, nullptr, false);
    if (config.is_object() && !config.contains("methods")) {
      // Twice the same key is for the parser to refuse.
      if (parse_json(value, kConfigFlag).ok()) {
        draft_.update(config);
        return {};
      }
    }
    out_.words.insert(out_.words.end(), {kConfigFlag, value});
    return {};
  }

  Status take_own(const std::string& name, const std::optional<std::string>& joined,
                  const CLI::Option& option) {
    const bool takes_value = option.get_expected_min() > 0 && option.get_items_expected_max() > 0;
    if (!takes_value) {
      out_.words.push_back(joined ? name + "=" + *joined : name);
      return {};
    }
    // The parser says what lacks.
    if (!joined && at_ + 1 == words_.size()) {
      out_.words.push_back(name);
      return {};
    }
    AERIE_ASSIGN_OR_RETURN(std::string value, value_of(name, joined));
    if (is_listed("--max-model-len,--max-num-batched-tokens", name)) value = counted(value);
    // vLLM's bench has the whole path.
    if (name == "--endpoint" && value == "/v1/chat/completions") value = "chat";
    if (name == "--endpoint" && value == "/v1/completions") value = "completions";
    push(name, value);
    // vLLM has several names in a row.
    while (name == "--served-model-name" && at_ + 1 < words_.size() &&
           !words_[at_ + 1].starts_with("-")) {
      push(name, words_[++at_]);
    }
    return {};
  }

  // In one word, so that a value with dashes before it is one.
  void push(std::string_view name, const std::string& value) {
    if (name.starts_with("--")) {
      out_.words.push_back(fmt::format("{}={}", name, value));
    } else {
      out_.words.insert(out_.words.end(), {std::string(name), value});
    }
  }

  Status take_theirs(const std::string& name, const std::optional<std::string>& joined,
                     const TheirFlag& flag) {
    std::string value;
    if (flag.value == TheirValue::kOne) {
      AERIE_ASSIGN_OR_RETURN(value, value_of(name, joined));
    } else if (flag.value == TheirValue::kWord && !joined && at_ + 1 < words_.size() &&
               is_listed("on,off,auto,true,false,0,1", words_[at_ + 1])) {
      ++at_;
    }
    if (!flag.neutral.empty() && is_listed(flag.neutral, value)) return {};
    switch (flag.fate) {
      case Fate::kAlias:
      case Fate::kAliasOrIgnored:
        return take_alias(name, value, flag);
      case Fate::kDraft:
        draft_[std::string(flag.ours)] = json_of(value);
        return {};
      case Fate::kSampling:
        sampling_[std::string(flag.ours)] = json_of(value);
        return {};
      case Fate::kCacheType:
        return take_cache_type(name, value);
      case Fate::kIgnored:
        ignored_.push_back(name);
        return {};
      case Fate::kRefused:
        break;
    }
    return invalid_argument("{}{}: {}", name, value.empty() ? "" : " " + value, flag.why);
  }

  Status take_alias(const std::string& name, const std::string& value, const TheirFlag& flag) {
    if (app_.get_option_no_throw(std::string(flag.ours)) == nullptr) {
      if (flag.fate == Fate::kAliasOrIgnored) {
        ignored_.push_back(name);
        return {};
      }
      return invalid_argument("{} is not of aerie {}{}{}", name, app_.get_name(),
                              flag.why.empty() ? "" : ": ", flag.why);
    }
    if (flag.value == TheirValue::kNone) {
      out_.words.emplace_back(flag.ours);
    } else {
      const bool adds_path = name == "--base-url" && !value.ends_with("/v1");
      push(flag.ours, adds_path ? value + "/v1" : counted(value));
    }
    return {};
  }

  // One type is for keys and values.
  Status take_cache_type(const std::string& name, const std::string& value) {
    std::string type;
    if (is_listed("fp8,fp8_e4m3,fp8_e5m2,int8,q8_0", value)) type = "q8";
    if (is_listed("auto,f16,fp16,float16,half,bf16,bfloat16", value)) type = "f16";
    if (type.empty()) {
      return invalid_argument("{} {}: keys and values are f16, or q8 for half the memory", name,
                              value);
    }
    if (!cache_type_.empty() && type != cache_type_) {
      return invalid_argument("{} {}: keys and values have one type here, and {} is given too",
                              name, value, cache_type_);
    }
    if (cache_type_.empty()) {
      push("--cache-type", type);
      if (value != "auto" && value != "f16") {
        out_.notes.push_back(fmt::format("{} {} is --cache-type {} here", name, value, type));
      }
    }
    cache_type_ = type;
    return {};
  }

  // Words for what files in YAML say, where the command line says nothing of it.
  Status expand_files() {
    for (size_t i = 0; i < words_.size(); ++i) {
      const std::string word = words_[i];
      const size_t equals = word.find('=');
      const std::string name = with_dashes(word.substr(0, equals));
      const bool is_theirs = is_listed("--extra-llm-api-options,--config", name);
      if (!is_theirs || (equals == std::string::npos && i + 1 == words_.size())) continue;
      const bool apart = equals == std::string::npos;
      const std::string path = apart ? words_[i + 1] : word.substr(equals + 1);
      const bool is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
      if (!is_yaml && name == "--config") continue;
      const auto from = words_.begin() + static_cast<ptrdiff_t>(i);
      words_.erase(from, from + (apart ? 2 : 1));
      std::ifstream file(path);
      const std::string text(std::istreambuf_iterator<char>(file), {});
      if (!file) return invalid_argument("{} {}: the file cannot be read", name, path);
      auto settings = parse_simple_yaml(text);
      if (!settings.ok()) return settings.status().with_context(name + " " + path);
      const std::vector<std::string> typed = words_;
      for (const auto& [key, value] : settings->items()) {
        AERIE_RETURN_IF_ERROR(add_setting(key, value, typed, path));
      }
      --i;
    }
    return {};
  }

  Status add_setting(const std::string& key, const Json& value,
                     const std::vector<std::string>& typed, const std::string& path) {
    const std::string name = with_dashes("--" + key);
    const bool is_config = name == kConfigFlag;
    if (value.is_object() && !is_config && find_their_flag(theirs_, name) == nullptr &&
        !own(name)) {
      for (const auto& [inner, one] : value.items()) {
        AERIE_RETURN_IF_ERROR(add_setting(fmt::format("{}.{}", key, inner), one, typed, path));
      }
      return {};
    }
    const TheirFlag* const theirs = find_their_flag(theirs_, name);
    if (theirs == nullptr && own(name) == nullptr && key != "model") {
      return invalid_argument("{}: there is no {} here", path, key);
    }
    const bool given = std::ranges::any_of(typed, [&](const std::string& word) {
      return with_dashes(word.substr(0, word.find('='))) == name;
    });
    if (given || value.is_null() || value == false) return {};
    const bool is_switch = theirs != nullptr ? theirs->value == TheirValue::kNone : value == true;
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    words_.push_back(is_switch ? name : name + "=" + text);
    return {};
  }

  Status close() {
    std::vector<std::string> keys;
    if (!draft_.empty()) {
      auto ours = to_our_speculation(draft_, keys);
      if (!ours.ok()) return ours.status().with_context("speculation");
      push(kConfigFlag, ours->dump());
    }
    if (!sampling_.empty()) push("--override-generation-config", sampling_.dump());
    for (const std::string& key : keys) ignored_.push_back("'" + key + "' of speculation");
    if (!ignored_.empty()) {
      std::vector<std::string> once;
      for (const std::string& name : ignored_) {
        if (std::ranges::find(once, name) == once.end()) once.push_back(name);
      }
      out_.notes.push_back(
          fmt::format("ignored, since they mean nothing here: {}", fmt::join(once, ", ")));
    }
    return {};
  }

  const CLI::App& app_;
  std::span<const TheirFlag> theirs_;
  std::vector<std::string> words_;
  size_t at_ = 0;
  OurCommand out_;
  Json draft_ = Json::object();
  Json sampling_ = Json::object();
  std::vector<std::string> ignored_;
  std::string cache_type_;
};

}  // namespace

Expected<OurCommand> to_our_command(const CLI::App& app, std::span<const TheirFlag> theirs,
                                    const std::vector<std::string>& words) {
  return Translator(app, theirs, words).translate();
}

}  // namespace aerie

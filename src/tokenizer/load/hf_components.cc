#include "tokenizer/load/hf_components.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "format/text.h"
#include "tokenizer/pieces/byte_alphabet.h"
#include "tokenizer/pieces/normalizer_steps.h"
#include "tokenizer/vocabulary.h"

namespace aerie {
namespace {

constexpr std::string_view kSign = "\u2581";
constexpr size_t kMostComponents = 64;  // each expression costs memory and time

Status unsupported(const JsonObject& component, std::string_view key, const std::string& what) {
  return component.error(StatusCode::kUnsupported, key, what);
}

// Calls `visit` for the component under `key`, or for each of a Sequence, in their order; `list` is
// the Sequence's key.
using Visit = std::function<Status(const JsonObject& component, std::string_view type)>;
Status visit_components(const JsonObject& component, std::string_view list, size_t& count,
                        int depth, const Visit& visit) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view type, component.string("type"));
  if (type != "Sequence") {
    if (++count > kMostComponents) {
      return unsupported(component, "type", "is one of too many components");
    }
    return visit(component, type);
  }
  if (depth > 8) return unsupported(component, "type", "is a Sequence nested too deep");
  const Json* parts = component.find(list);
  if (parts == nullptr || !parts->is_array()) {
    return component.error(StatusCode::kInvalidData, list, "is not a list");
  }
  for (size_t i = 0; i < parts->size(); ++i) {
    AERIE_ASSIGN_OR_RETURN(
        const JsonObject part,
        JsonObject::view((*parts)[i], fmt::format("{}: {}[{}]", component.file(), list, i)));
    AERIE_RETURN_IF_ERROR(visit_components(part, list, count, depth + 1, visit));
  }
  return {};
}

Status visit_key(const JsonObject& root, std::string_view key, std::string_view list,
                 const Visit& visit) {
  const Json* value = root.find(key);
  if (value == nullptr) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject component,
                         JsonObject::view(*value, fmt::format("{}: {}", root.file(), key)));
  size_t count = 0;
  return visit_components(component, list, count, 0, visit);
}

Status unknown(const JsonObject& component, std::string_view type) {
  return unsupported(component, "type",
                     fmt::format("is '{}', which is not supported", printable(type, 40)));
}

// {"String": "..."} or {"Regex": "..."}.
struct Pattern {
  std::string text;
  bool regex = false;
};
Expected<Pattern> read_pattern(const JsonObject& component) {
  AERIE_ASSIGN_OR_RETURN(const JsonObject pattern, component.object("pattern"));
  if (pattern.has("Regex")) {
    AERIE_ASSIGN_OR_RETURN(const std::string_view text, pattern.string("Regex"));
    return Pattern{std::string(text), true};
  }
  AERIE_ASSIGN_OR_RETURN(const std::string_view text, pattern.string("String"));
  return Pattern{std::string(text), false};
}

Expected<Regex> compile(const JsonObject& component, const Pattern& pattern) {
  return in_context(pattern.regex ? Regex::compile(pattern.text) : Regex::literal(pattern.text),
                    component.file());
}

// Of base64, as serde writes bytes.
Expected<std::string> decode_base64(const JsonObject& component, std::string_view key) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view text, component.string(key));
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    int value = -1;
    if (c >= 'A' && c <= 'Z') value = c - 'A';
    if (c >= 'a' && c <= 'z') value = c - 'a' + 26;
    if (c >= '0' && c <= '9') value = c - '0' + 52;
    if (c == '+') value = 62;
    if (c == '/') value = 63;
    if (value < 0) return component.error(StatusCode::kInvalidData, key, "is not base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xFF);
    }
  }
  return bytes;
}

// What a normaliser puts into a text for a character of it.
Status check_length(const JsonObject& component, std::string_view key, std::string_view content) {
  constexpr size_t kMostBytes = 1024;
  if (content.size() <= kMostBytes) return {};
  return unsupported(component, key, fmt::format("is longer than {} bytes", kMostBytes));
}

Status add_replace(const JsonObject& component, Normalizer& normalizer, HfShape& shape) {
  AERIE_ASSIGN_OR_RETURN(const Pattern pattern, read_pattern(component));
  AERIE_ASSIGN_OR_RETURN(const std::string_view content, component.string("content"));
  AERIE_RETURN_IF_ERROR(check_length(component, "content", content));
  if (!pattern.regex && !pattern.text.empty()) {
    if (pattern.text == " " && content == kSign) {
      shape.spaces_to_signs = true;
    } else {
      shape.only_spaces_change = false;
    }
    normalizer.add(replace_text_step(pattern.text, std::string(content)));
    return {};
  }
  shape.only_spaces_change = false;
  AERIE_ASSIGN_OR_RETURN(Regex regex, compile(component, pattern));
  normalizer.add(replace_step(std::move(regex), std::string(content)));
  return {};
}

Status add_strip(const JsonObject& component, Normalizer& normalizer) {
  AERIE_ASSIGN_OR_RETURN(const bool left, component.boolean("strip_left"));
  AERIE_ASSIGN_OR_RETURN(const bool right, component.boolean("strip_right"));
  normalizer.add(strip_step(left, right));
  return {};
}

Status add_precompiled(const JsonObject& component, Normalizer& normalizer) {
  AERIE_ASSIGN_OR_RETURN(const std::string bytes, decode_base64(component, "precompiled_charsmap"));
  auto map = Charsmap::parse(bytes);
  if (!map.ok()) return map.status().with_context(component.file());
  normalizer.add(precompiled_step(std::move(map).value()));
  return {};
}

Status add_normalizer(const JsonObject& component, std::string_view type, Normalizer& normalizer,
                      HfShape& shape) {
  if (type == "Replace") {
    shape.is_recipe = false;
    return add_replace(component, normalizer, shape);
  }
  if (type == "Prepend") {
    AERIE_ASSIGN_OR_RETURN(const std::string_view text, component.string("prepend"));
    AERIE_RETURN_IF_ERROR(check_length(component, "prepend", text));
    shape.is_recipe = false;
    if (shape.spaces_to_signs || !shape.prepended.empty()) shape.only_spaces_change = false;
    shape.prepended += text;
    normalizer.add(prepend_step(std::string(text)));
    return {};
  }
  shape.only_spaces_change = false;
  if (type == "NFC") {
    if (shape.recipe.nfc || !normalizer.empty()) shape.is_recipe = false;
    shape.recipe.nfc = true;
    normalizer.add(normal_form_step(NormalForm::kNfc));
    return {};
  }
  shape.is_recipe = false;
  if (type == "Strip") return add_strip(component, normalizer);
  if (type == "Precompiled") return add_precompiled(component, normalizer);
  if (type == "NFD") {
    normalizer.add(normal_form_step(NormalForm::kNfd));
  } else if (type == "NFKC") {
    normalizer.add(normal_form_step(NormalForm::kNfkc));
  } else if (type == "NFKD") {
    normalizer.add(normal_form_step(NormalForm::kNfkd));
  } else if (type == "Lowercase") {
    normalizer.add(lowercase_step());
  } else if (type == "StripAccents") {
    normalizer.add(strip_accents_step());
  } else if (type == "ByteLevel") {
    normalizer.add(byte_level_step());
  } else if (type == "Nmt") {
    normalizer.add(nmt_step());
  } else {
    return unknown(component, type);
  }
  return {};
}

Expected<SplitBehavior> read_behavior(const JsonObject& component, std::string_view fallback) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view name, component.string("behavior", fallback));
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  return component.error(StatusCode::kInvalidData, "behavior", "is '{}', which is none of the five",
                         printable(name, 40));
}

// Gathers the steps; a ByteLevel's spelling becomes a step only if something follows it.
class PreTokenizerReader {
 public:
  explicit PreTokenizerReader(HfShape& shape) : shape_(shape) {}

  Status add(const JsonObject& component, std::string_view type) {
    if (type == "ByteLevel") return byte_level(component);
    if (type == "Metaspace") return metaspace(component);
    if (type == "Split") return split(component);
    shape_.only_spaces_change = false;
    if (type == "Digits") {
      AERIE_ASSIGN_OR_RETURN(const bool each, component.boolean("individual_digits", false));
      return rule(component, {std::string(kDigitPattern),
                              each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false});
    }
    if (type == "Punctuation") {
      AERIE_ASSIGN_OR_RETURN(const SplitBehavior behavior, read_behavior(component, "Isolated"));
      return rule(component, {std::string(kPunctuationPattern), behavior, false});
    }
    if (type == "Whitespace") {
      // Rust's \w has the joiners.
      return rule(component, {R"([\w\x{200c}\x{200d}]+|[^\w\s\x{200c}\x{200d}]+)",
                              SplitBehavior::kRemoved, true});
    }
    if (type == "WhitespaceSplit") return rule(component, {"\\s", SplitBehavior::kRemoved, false});
    if (type == "BertPreTokenizer") {
      AERIE_RETURN_IF_ERROR(rule(component, {"\\s", SplitBehavior::kRemoved, false}));
      return rule(component, {std::string(kPunctuationPattern), SplitBehavior::kIsolated, false});
    }
    if (type == "CharDelimiterSplit") {
      AERIE_ASSIGN_OR_RETURN(const std::string_view delimiter, component.string("delimiter"));
      return literal(component, std::string(delimiter), SplitBehavior::kRemoved, false);
    }
    return unknown(component, type);
  }

  HfPreTokenizer take() {
    if (!spelled_) shape_.is_recipe = false;
    result_.byte_level = spelled_ && !spelled_step_;
    return std::move(result_);
  }

 private:
  void spell_before_more() {
    if (spelled_ && !spelled_step_) {
      result_.steps.add_byte_names();
      spelled_step_ = true;
    }
  }

  Status rule(const JsonObject& component, SplitRule rule) {
    AERIE_ASSIGN_OR_RETURN(Regex regex, compile(component, {rule.pattern, true}));
    spell_before_more();
    result_.steps.add_split(std::move(regex), rule.behavior, rule.invert);
    (spelled_ ? shape_.recipe.rules_on_bytes : shape_.recipe.rules).push_back(std::move(rule));
    return {};
  }

  Status literal(const JsonObject& component, const std::string& text, SplitBehavior behavior,
                 bool invert) {
    AERIE_ASSIGN_OR_RETURN(Regex regex, compile(component, {text, false}));
    spell_before_more();
    shape_.is_recipe = false;
    result_.steps.add_split(std::move(regex), behavior, invert);
    return {};
  }

  Status split(const JsonObject& component) {
    AERIE_ASSIGN_OR_RETURN(const Pattern pattern, read_pattern(component));
    AERIE_ASSIGN_OR_RETURN(const SplitBehavior behavior, read_behavior(component, ""));
    AERIE_ASSIGN_OR_RETURN(const bool invert, component.boolean("invert", false));
    // Gemma splits at spaces, of which its normaliser has left none.
    const bool idle = !pattern.regex && pattern.text == " " && shape_.spaces_to_signs && !invert;
    if (!idle) shape_.only_spaces_change = false;
    if (pattern.regex) return rule(component, {pattern.text, behavior, invert});
    return literal(component, pattern.text, behavior, invert);
  }

  Status byte_level(const JsonObject& component) {
    AERIE_ASSIGN_OR_RETURN(const bool space, component.boolean("add_prefix_space", true));
    AERIE_ASSIGN_OR_RETURN(const bool regex, component.boolean("use_regex", true));
    shape_.only_spaces_change = false;
    if (spelled_) return unsupported(component, "type", "is 'ByteLevel' a second time");
    if (space) {
      shape_.is_recipe = false;
      result_.steps.add_space();
    }
    if (regex) {
      AERIE_RETURN_IF_ERROR(
          rule(component, {std::string(kGpt2Pattern), SplitBehavior::kIsolated, false}));
    }
    spelled_ = true;
    return {};
  }

  Status metaspace(const JsonObject& component) {
    AERIE_ASSIGN_OR_RETURN(const std::string_view sign, component.string("replacement"));
    AERIE_ASSIGN_OR_RETURN(const std::string_view name,
                           component.string("prepend_scheme", "always"));
    AERIE_ASSIGN_OR_RETURN(const bool prefix, component.boolean("add_prefix_space", true));
    AERIE_ASSIGN_OR_RETURN(const bool cut, component.boolean("split", true));
    PrependScheme scheme = PrependScheme::kAlways;
    if (name == "first") {
      scheme = PrependScheme::kFirst;
    } else if (name == "never" || !prefix) {
      scheme = PrependScheme::kNever;
    } else if (name != "always") {
      return component.error(StatusCode::kInvalidData, "prepend_scheme",
                             "is none of 'always', 'first' and 'never'");
    }
    if (utf8_sequence_length(sign) != sign.size()) {
      return component.error(StatusCode::kInvalidData, "replacement", "is not one character");
    }
    spell_before_more();
    shape_.is_recipe = false;
    if (sign == kSign && !shape_.spaces_to_signs && shape_.prepended.empty()) {
      shape_.spaces_to_signs = true;
      if (scheme != PrependScheme::kNever) shape_.prepended = kSign;
      shape_.prefix_first_only = scheme == PrependScheme::kFirst;
      if (cut) shape_.only_spaces_change = false;
    } else {
      shape_.only_spaces_change = false;
    }
    result_.steps.add_metaspace(std::string(sign), scheme, cut);
    return {};
  }

  HfShape& shape_;
  HfPreTokenizer result_;
  bool spelled_ = false;       // a ByteLevel was met
  bool spelled_step_ = false;  // and is a step
};

}  // namespace

Status read_hf_normalizer(const JsonObject& root, Normalizer& normalizer, HfShape& shape) {
  return visit_key(root, "normalizer", "normalizers",
                   [&](const JsonObject& component, std::string_view type) {
                     return add_normalizer(component, type, normalizer, shape);
                   });
}

Expected<HfPreTokenizer> read_hf_pre_tokenizer(const JsonObject& root, HfShape& shape) {
  PreTokenizerReader reader(shape);
  AERIE_RETURN_IF_ERROR(visit_key(root, "pre_tokenizer", "pretokenizers",
                                  [&](const JsonObject& component, std::string_view type) {
                                    return reader.add(component, type);
                                  }));
  return reader.take();
}

std::string HfDecoder::piece(std::string_view name) const {
  std::string text;
  if (byte_level) {
    // A name that spells no bytes stands for itself.
    if (!append_named_bytes(name, text)) text = name;
    return text;
  }
  if (const int byte = byte_of_name(name); byte_fallback && byte >= 0) {
    return std::string(1, static_cast<char>(byte));
  }
  text = name;
  for (const auto& [from, to] : replacements) {
    std::string replaced;
    size_t done = 0;
    for (size_t at = text.find(from); at != text.npos; at = text.find(from, done)) {
      replaced.append(text, done, at - done).append(to);
      done = at + from.size();
    }
    text = replaced.append(text, done);
  }
  return text;
}

Expected<HfDecoder> read_hf_decoder(const JsonObject& root) {
  HfDecoder decoder;
  bool fused = false, any = false;
  const auto add = [&](const JsonObject& component, std::string_view type) -> Status {
    any = true;
    const bool bytes = type == "ByteFallback" || type == "ByteLevel";
    if (fused && type != "Strip") return unsupported(component, "type", "follows Fuse");
    if (bytes && decoder.byte_level) return unsupported(component, "type", "follows ByteLevel");
    if (type == "ByteLevel") {
      decoder.byte_level = true;
    } else if (type == "ByteFallback") {
      decoder.byte_fallback = true;
    } else if (type == "Fuse") {
      fused = true;
    } else if (type == "Replace") {
      AERIE_ASSIGN_OR_RETURN(const Pattern pattern, read_pattern(component));
      AERIE_ASSIGN_OR_RETURN(const std::string_view content, component.string("content"));
      if (pattern.regex || pattern.text.empty() || decoder.byte_fallback || decoder.byte_level) {
        return unsupported(component, "pattern", "is not a text that is replaced before bytes are");
      }
      decoder.replacements.emplace_back(pattern.text, content);
    } else if (type == "Metaspace") {
      AERIE_ASSIGN_OR_RETURN(const std::string_view sign, component.string("replacement"));
      AERIE_ASSIGN_OR_RETURN(const std::string_view scheme,
                             component.string("prepend_scheme", "always"));
      AERIE_ASSIGN_OR_RETURN(const bool prefix, component.boolean("add_prefix_space", true));
      if (sign.empty()) return component.error(StatusCode::kInvalidData, "replacement", "is empty");
      decoder.replacements.emplace_back(sign, " ");
      decoder.strips_leading_space = scheme != "never" && prefix;
    } else if (type == "Strip") {
      AERIE_ASSIGN_OR_RETURN(const std::string_view content, component.string("content"));
      AERIE_ASSIGN_OR_RETURN(const int64_t start, component.integer("start"));
      AERIE_ASSIGN_OR_RETURN(const int64_t stop, component.integer("stop"));
      if (!fused || content != " " || start > 1 || start < 0 || stop != 0) {
        return unsupported(component, "type",
                           "is a 'Strip' of something other than one leading space");
      }
      decoder.strips_leading_space = start == 1;
    } else {
      return unknown(component, type);
    }
    return {};
  };
  AERIE_RETURN_IF_ERROR(visit_key(root, "decoder", "decoders", add));
  if (!any) {
    return root.error(StatusCode::kUnsupported, "decoder",
                      "is absent, so that tokens would be joined with spaces between them");
  }
  return decoder;
}

Expected<HfTemplate> read_hf_post_processor(const JsonObject& root) {
  HfTemplate result;
  const auto add = [&](const JsonObject& component, std::string_view type) -> Status {
    if (type == "ByteLevel") return {};  // it only moves offsets
    if (type != "TemplateProcessing") return unknown(component, type);
    const Json* parts = component.find("single");
    if (parts == nullptr || !parts->is_array()) {
      return component.error(StatusCode::kInvalidData, "single", "is not a list");
    }
    if (result.given) return unsupported(component, "type", "is a second template");
    result.given = true;
    bool text = false;
    for (const Json& part : *parts) {
      AERIE_ASSIGN_OR_RETURN(const JsonObject object,
                             JsonObject::view(part, component.file() + ": single"));
      if (object.has("Sequence")) {
        if (text) return unsupported(component, "single", "has the text twice");
        text = true;
        continue;
      }
      AERIE_ASSIGN_OR_RETURN(const JsonObject token, object.object("SpecialToken"));
      AERIE_ASSIGN_OR_RETURN(const std::string_view name, token.string("id"));
      std::optional<std::string>& place = text ? result.behind : result.before;
      if (place) return unsupported(component, "single", "has several tokens on one side");
      place = std::string(name);
    }
    if (!text) return unsupported(component, "single", "leaves the text out");
    return {};
  };
  AERIE_RETURN_IF_ERROR(visit_key(root, "post_processor", "processors", add));
  return result;
}

}  // namespace aerie

#include "tokenizer/load/gguf_metadata.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "format/gguf/metadata_builder.h"
#include "format/text.h"
#include "tokenizer/vocabulary.h"

namespace aerie {

void add_tokenizer(const GgufTokenizerMetadata& words, MetadataBuilder& metadata) {
  const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
  metadata.add_string(key("model"), words.model);
  if (!words.pre.empty()) metadata.add_string(key("pre"), words.pre);
  metadata.add_strings(key("tokens"), words.tokens);
  metadata.add_i32s(key("token_type"), {words.types.begin(), words.types.end()});
  if (!words.scores.empty()) metadata.add_f32s(key("scores"), words.scores);
  if (!words.merges.empty() || words.model == "gpt2") {
    metadata.add_strings(key("merges"), words.merges);
  }
  if (!words.precompiled_charsmap.empty()) {
    const std::string& bytes = words.precompiled_charsmap;
    metadata.add_u8s(key("precompiled_charsmap"), {bytes.begin(), bytes.end()});
  }
  const auto id = [&](const char* name, const std::optional<int64_t>& value) {
    if (value) metadata.add_u32(key(name), static_cast<uint32_t>(*value));
  };
  id("bos_token_id", words.bos);
  id("eos_token_id", words.eos);
  id("eot_token_id", words.eot);
  id("eom_token_id", words.eom);
  id("unknown_token_id", words.unk);
  id("padding_token_id", words.pad);
  const auto flag = [&](const char* name, const std::optional<bool>& value) {
    if (value) metadata.add_bool(key(name), *value);
  };
  flag("add_bos_token", words.add_bos);
  flag("add_eos_token", words.add_eos);
  flag("add_space_prefix", words.add_space_prefix);
  flag("remove_extra_whitespaces", words.remove_extra_whitespaces);
}

std::string filler_token(size_t id) {
  return fmt::format("[PAD{}]", id);
}

Status fit_tokens(int64_t count, GgufTokenizerMetadata& words) {
  constexpr float kNever = -10000.0f;  // the score that converters give to tokens that fill up
  const auto size = static_cast<size_t>(count);
  for (size_t id = size; id < words.tokens.size(); ++id) {
    const std::string name = printable(words.tokens[id], 40);
    if (words.types[id] == static_cast<int64_t>(TokenType::kNormal)) {
      return not_supported("the tokenizer has the token '{}', number {}, and the model has {}",
                           name, id, count);
    }
    words.notes.push_back(
        fmt::format("'{}' is token {}: the model has no embedding for it", name, id));
  }
  for (size_t id = words.tokens.size(); id < size; ++id) {
    words.tokens.push_back(filler_token(id));
  }
  words.tokens.resize(size);
  words.types.resize(size, static_cast<int64_t>(TokenType::kUnused));
  if (!words.scores.empty()) words.scores.resize(size, kNever);
  for (std::optional<int64_t>* id :
       {&words.bos, &words.eos, &words.eot, &words.eom, &words.unk, &words.pad}) {
    if (*id && **id >= count) id->reset();
  }
  return {};
}

}  // namespace aerie

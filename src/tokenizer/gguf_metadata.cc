#include "tokenizer/gguf_metadata.h"

#include "format/metadata_builder.h"

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

}  // namespace aerie

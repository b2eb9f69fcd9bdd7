#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>

#include "tokenizer/bpe.h"

namespace aerie {
namespace {

Expected<std::vector<std::string>> copy_strings(const ModelFile& file, std::string_view key) {
  AERIE_ASSIGN_OR_RETURN(const auto strings, file.strings(key));
  return std::vector<std::string>(strings.begin(), strings.end());
}

Status read_optional(const ModelFile& file, std::string_view key, std::optional<int64_t>& out) {
  if (file.find(key) == nullptr) return {};
  AERIE_ASSIGN_OR_RETURN(out, file.integer(key));
  return {};
}

Status read_optional(const ModelFile& file, std::string_view key, bool& out) {
  if (file.find(key) == nullptr) return {};
  AERIE_ASSIGN_OR_RETURN(out, file.boolean(key));
  return {};
}

Expected<BpeData> read_bpe(const ModelFile& file) {
  BpeData data;
  AERIE_ASSIGN_OR_RETURN(data.tokens, copy_strings(file, "tokenizer.ggml.tokens"));
  AERIE_ASSIGN_OR_RETURN(const auto types, file.numbers("tokenizer.ggml.token_type"));
  for (const double type : types) {
    // What is no small integer becomes one that is refused with the others.
    data.types.push_back(
        type == std::floor(type) && std::fabs(type) < 256 ? static_cast<int64_t>(type) : -1);
  }
  AERIE_ASSIGN_OR_RETURN(data.merges, copy_strings(file, "tokenizer.ggml.merges"));
  // Files from before the key was introduced have GPT-2's pre-tokenizer.
  if (file.find("tokenizer.ggml.pre") != nullptr) {
    AERIE_ASSIGN_OR_RETURN(data.pre, file.string("tokenizer.ggml.pre"));
  }
  AERIE_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.bos_token_id", data.bos));
  AERIE_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.eos_token_id", data.eos));
  AERIE_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.eot_token_id", data.eot));
  AERIE_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.eom_token_id", data.eom));
  AERIE_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.add_bos_token", data.add_bos));
  AERIE_RETURN_IF_ERROR(read_optional(file, "tokenizer.ggml.add_eos_token", data.add_eos));
  return data;
}

}  // namespace

Expected<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view model, file.string("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: tokenizer.ggml.model is '{}', and this build knows only 'gpt2' "
                              "(byte-level BPE)",
                              file.name(), model.substr(0, 40)));
  }
  AERIE_ASSIGN_OR_RETURN(const BpeData data, read_bpe(file));
  auto tokenizer = BpeTokenizer::create(data);
  if (!tokenizer.ok()) return tokenizer.status().with_context(file.name());
  return std::unique_ptr<Tokenizer>(std::move(tokenizer).value());
}

}  // namespace aerie

// Tokenizers from GGUF's tokenizer.ggml.* metadata, which is hostile until it is checked.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "format/text.h"
#include "tokenizer/load/gguf_metadata.h"
#include "tokenizer/load/recipes.h"
#include "tokenizer/pieces/bpe.h"
#include "tokenizer/pieces/byte_alphabet.h"
#include "tokenizer/pieces/sentencepiece_normalizer.h"
#include "tokenizer/pieces/unigram.h"
#include "tokenizer/pipeline.h"

namespace aerie {
namespace {

const VocabularyKeys kKeys;
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kScores = "tokenizer.ggml.scores";

TokenRoles roles_of(const GgufTokenizerMetadata& metadata) {
  TokenRoles roles;
  roles.bos = metadata.bos;
  roles.eos = metadata.eos;
  roles.eot = metadata.eot;
  roles.eom = metadata.eom;
  roles.unk = metadata.unk;
  roles.pad = metadata.pad;
  roles.add_bos = metadata.add_bos.value_or(false);
  roles.add_eos = metadata.add_eos.value_or(false);
  return roles;
}

Status check_counts(const GgufTokenizerMetadata& metadata) {
  const size_t count = metadata.tokens.size();
  if (metadata.types.size() != count) {
    return invalid_data(fmt::format("{} has {} entries and {} has {}; they must be as many",
                                    kKeys.types, metadata.types.size(), kKeys.tokens, count));
  }
  if (metadata.model != "gpt2" && metadata.scores.size() != count) {
    return invalid_data(fmt::format("{} has {} entries and {} has {}; they must be as many",
                                    kScores, metadata.scores.size(), kKeys.tokens, count));
  }
  return {};
}

// User-defined tokens in every text, control tokens where they are asked for.
Status add_tokens(const GgufTokenizerMetadata& metadata, const Vocabulary& vocabulary,
                  bool user_defined, AddedTokens& added) {
  // Phi-3's control tokens take the white space behind them along, which GGUF cannot say.
  std::string name = metadata.model_name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool phi3 = metadata.model == "llama" &&
                    (name.find("phi-3") != name.npos || name.find("phi3") != name.npos);
  std::vector<AddedToken> tokens;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const bool special = vocabulary.is_control(id);
    if (!special && (!user_defined || vocabulary.type(id) != TokenType::kUserDefined)) continue;
    AddedToken token;
    token.content = vocabulary.name(id);
    token.id = id;
    token.special = special;
    token.rstrip = phi3 && token.content != "<unk>" && token.content != "<s>" &&
                   token.content != "<|endoftext|>";
    tokens.push_back(std::move(token));
  }
  AERIE_ASSIGN_OR_RETURN(added, AddedTokens::create(std::move(tokens), nullptr));
  return {};
}

Status check_bytes(const Bpe& model, std::string& missing) {
  for (int byte = 0; byte < 256; ++byte) {
    if (model.byte_id(static_cast<uint8_t>(byte)) >= 0) continue;
    missing += static_cast<char>(byte);
    if ((byte >= 0x20 && byte < 0x7F) || byte == '\n') {
      return not_supported(
          "{} has no token for byte 0x{:02x}, so this is not a byte-level vocabulary", kKeys.tokens,
          byte);
    }
  }
  return {};
}

Expected<std::vector<std::pair<std::string_view, std::string_view>>> split_merges(
    const std::vector<std::string>& merges) {
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  pairs.reserve(merges.size());
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
      return invalid_data(
          fmt::format("{}: entry {}, '{}', is not two tokens with a space between them", kMerges,
                      pairs.size(), printable(merge, 40)));
    }
    const std::string_view text = merge;
    pairs.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return pairs;
}

// What converters write for an id that no token has: holes, and rows that fill up an embedding.
bool is_filler(const GgufTokenizerMetadata& metadata, size_t id) {
  return metadata.types[id] == static_cast<int64_t>(TokenType::kUnused) &&
         metadata.tokens[id] == filler_token(id);
}

Expected<PipelineParts> byte_level(const GgufTokenizerMetadata& metadata) {
  PipelineParts parts;
  // Files from before the key was introduced have GPT-2's pre-tokenizer.
  const std::string pre = metadata.pre.empty() ? "gpt-2" : metadata.pre;
  AERIE_ASSIGN_OR_RETURN(const Recipe recipe, recipe_of_name(pre));
  AERIE_RETURN_IF_ERROR(add_recipe(recipe, parts.normalizer, parts.pre_tokenizer));
  parts.vocabulary = std::make_unique<Vocabulary>();
  Vocabulary& vocabulary = *parts.vocabulary;
  std::string piece;
  for (size_t id = 0; id < metadata.tokens.size(); ++id) {
    const int64_t type = metadata.types[id];
    if (type == static_cast<int64_t>(TokenType::kByte)) {
      return not_supported(
          "{} of token {} is 6 (byte), which belongs to SentencePiece vocabularies", kKeys.types,
          id);
    }
    const std::string& name = metadata.tokens[id];
    const bool spelled = type == static_cast<int64_t>(TokenType::kNormal) ||
                         type == static_cast<int64_t>(TokenType::kUnused);
    piece.clear();
    // A name that spells no bytes stands for itself, as in Hugging Face's decoder; encoding never
    // gives such a token.
    if (!spelled || !append_named_bytes(name, piece)) piece = name;
    if (is_filler(metadata, id)) piece.clear();
    AERIE_RETURN_IF_ERROR(vocabulary.add(name, piece, type, kKeys));
  }
  AERIE_RETURN_IF_ERROR(vocabulary.finish(roles_of(metadata), kKeys));
  AERIE_RETURN_IF_ERROR(add_tokens(metadata, vocabulary, true, parts.added));
  AERIE_ASSIGN_OR_RETURN(const auto merges, split_merges(metadata.merges));
  BpeOptions options;
  options.ignore_merges = recipe.ignore_merges;
  options.bytes = recipe.rules_on_bytes.empty();
  AERIE_ASSIGN_OR_RETURN(auto model, Bpe::from_merges(vocabulary, merges, options, kMerges));
  if (options.bytes) AERIE_RETURN_IF_ERROR(check_bytes(*model, parts.missing_bytes));
  parts.model = std::move(model);
  return parts;
}

Status add_sentencepiece_tokens(const GgufTokenizerMetadata& metadata, Vocabulary& vocabulary) {
  for (size_t id = 0; id < metadata.tokens.size(); ++id) {
    const std::string& name = metadata.tokens[id];
    std::string piece = name;
    const int64_t type = metadata.types[id];
    if (type == static_cast<int64_t>(TokenType::kByte)) {
      const int byte = byte_of_name(name);
      if (byte < 0) {
        return invalid_data(fmt::format("{} of token {} is 6 (byte), and its name is '{}'",
                                        kKeys.types, id, printable(name, 40)));
      }
      piece.assign(1, static_cast<char>(byte));
    } else if (type == static_cast<int64_t>(TokenType::kNormal) ||
               type == static_cast<int64_t>(TokenType::kUnused) || metadata.model == "t5") {
      piece = unescaped_spaces(name);
    }
    if (is_filler(metadata, id)) piece.clear();
    AERIE_RETURN_IF_ERROR(vocabulary.add(name, piece, type, kKeys));
  }
  return {};
}

// The file's id, else the one that SentencePiece gives if there is such a token, else none.
TokenRoles sentencepiece_roles(const GgufTokenizerMetadata& metadata) {
  TokenRoles roles = roles_of(metadata);
  const auto count = static_cast<int64_t>(metadata.tokens.size());
  const bool t5 = metadata.model == "t5";
  const auto fall_back = [count](std::optional<int64_t>& id, int64_t usual) {
    if (!id && usual < count) id = usual;
  };
  if (!t5) fall_back(roles.bos, 1);
  fall_back(roles.eos, t5 ? 1 : 2);
  if (!roles.unk) {
    const auto found = std::ranges::find(metadata.types, static_cast<int64_t>(TokenType::kUnknown));
    if (found != metadata.types.end()) roles.unk = found - metadata.types.begin();
  }
  roles.add_bos = metadata.add_bos.value_or(!t5);
  roles.add_eos = metadata.add_eos.value_or(t5);
  return roles;
}

Expected<PipelineParts> sentencepiece(const GgufTokenizerMetadata& metadata) {
  const bool t5 = metadata.model == "t5";
  PipelineParts parts;
  parts.vocabulary = std::make_unique<Vocabulary>();
  Vocabulary& vocabulary = *parts.vocabulary;
  AERIE_RETURN_IF_ERROR(add_sentencepiece_tokens(metadata, vocabulary));
  AERIE_RETURN_IF_ERROR(vocabulary.finish(sentencepiece_roles(metadata), kKeys));
  AERIE_RETURN_IF_ERROR(add_tokens(metadata, vocabulary, !t5, parts.added));

  SentencePieceNormalizerOptions normalizer;
  AERIE_ASSIGN_OR_RETURN(normalizer.map, in_context(Charsmap::parse(metadata.precompiled_charsmap),
                                                    "tokenizer.ggml.precompiled_charsmap"));
  normalizer.add_dummy_prefix = metadata.add_space_prefix.value_or(!t5);
  normalizer.remove_extra_whitespaces = metadata.remove_extra_whitespaces.value_or(false);
  bool bytes = false;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    bytes = bytes || vocabulary.type(id) == TokenType::kByte;
    if (t5 && vocabulary.type(id) == TokenType::kUserDefined) {
      normalizer.user_defined.emplace_back(vocabulary.name(id));
    }
  }
  parts.strips_leading_space = normalizer.add_dummy_prefix;
  parts.normalizer.add(sentencepiece_step(std::move(normalizer)));
  if (t5) {
    const std::vector<double> scores(metadata.scores.begin(), metadata.scores.end());
    auto model = Unigram::create(vocabulary, scores, {bytes, true});
    if (!model.ok()) return model.status().with_context(kScores);
    parts.model = std::move(model).value();
  } else {
    AERIE_ASSIGN_OR_RETURN(
        parts.model, in_context(Bpe::from_scores(vocabulary, metadata.scores, bytes), kScores));
  }
  return parts;
}

template <typename T>
Status read_optional(const Expected<T>& value, bool present, std::optional<T>& out) {
  if (!present) return {};
  if (!value.ok()) return value.status();
  out = value.value();
  return {};
}

Status read_id(const ModelFile& file, const std::string& name, std::optional<int64_t>& out) {
  const std::string key = "tokenizer.ggml." + name + "_token_id";
  return read_optional(file.integer(key), file.find(key) != nullptr, out);
}

Status read_flag(const ModelFile& file, const std::string& name, std::optional<bool>& out) {
  const std::string key = "tokenizer.ggml." + name;
  return read_optional(file.boolean(key), file.find(key) != nullptr, out);
}

Status read_strings(const ModelFile& file, std::string_view key, std::vector<std::string>& out) {
  AERIE_ASSIGN_OR_RETURN(const auto strings, file.strings(key));
  out.assign(strings.begin(), strings.end());
  return {};
}

Status read_model_parts(const ModelFile& file, GgufTokenizerMetadata& metadata) {
  if (metadata.model == "gpt2") return read_strings(file, kMerges, metadata.merges);
  AERIE_ASSIGN_OR_RETURN(const auto scores, file.numbers(kScores));
  for (const double score : scores) metadata.scores.push_back(static_cast<float>(score));
  constexpr const char* kMap = "tokenizer.ggml.precompiled_charsmap";
  if (file.find(kMap) == nullptr) return {};
  AERIE_ASSIGN_OR_RETURN(const auto bytes, file.numbers(kMap));
  for (const double byte : bytes) {
    if (!(byte >= -128 && byte <= 255 && byte == std::floor(byte))) {
      return invalid_data(fmt::format("{}: {} holds a value that is no byte", file.name(), kMap));
    }
    metadata.precompiled_charsmap += static_cast<char>(static_cast<int>(byte));
  }
  return {};
}

Expected<GgufTokenizerMetadata> read_metadata(const ModelFile& file) {
  GgufTokenizerMetadata metadata;
  AERIE_ASSIGN_OR_RETURN(metadata.model, file.string("tokenizer.ggml.model"));
  if (metadata.model != "gpt2" && metadata.model != "llama" && metadata.model != "t5") {
    return not_supported(
        "{}: tokenizer.ggml.model is '{}', and this build knows only 'gpt2' (byte-level BPE), "
        "'llama' (SentencePiece BPE) and 't5' (unigram)",
        file.name(), printable(metadata.model, 40));
  }
  AERIE_RETURN_IF_ERROR(read_strings(file, "tokenizer.ggml.tokens", metadata.tokens));
  AERIE_ASSIGN_OR_RETURN(const auto types, file.numbers("tokenizer.ggml.token_type"));
  for (const double type : types) {
    // What is no small integer becomes one that is refused with the others.
    metadata.types.push_back(
        type == std::floor(type) && std::fabs(type) < 256 ? static_cast<int64_t>(type) : -1);
  }
  AERIE_RETURN_IF_ERROR(read_model_parts(file, metadata));
  if (file.find("tokenizer.ggml.pre") != nullptr) {
    AERIE_ASSIGN_OR_RETURN(metadata.pre, file.string("tokenizer.ggml.pre"));
  }
  if (file.find("general.name") != nullptr) {
    AERIE_ASSIGN_OR_RETURN(metadata.model_name, file.string("general.name"));
  }
  AERIE_RETURN_IF_ERROR(read_id(file, "bos", metadata.bos));
  AERIE_RETURN_IF_ERROR(read_id(file, "eos", metadata.eos));
  AERIE_RETURN_IF_ERROR(read_id(file, "eot", metadata.eot));
  AERIE_RETURN_IF_ERROR(read_id(file, "eom", metadata.eom));
  AERIE_RETURN_IF_ERROR(read_id(file, "unknown", metadata.unk));
  AERIE_RETURN_IF_ERROR(read_id(file, "padding", metadata.pad));
  AERIE_RETURN_IF_ERROR(read_flag(file, "add_bos_token", metadata.add_bos));
  AERIE_RETURN_IF_ERROR(read_flag(file, "add_eos_token", metadata.add_eos));
  AERIE_RETURN_IF_ERROR(read_flag(file, "add_space_prefix", metadata.add_space_prefix));
  AERIE_RETURN_IF_ERROR(
      read_flag(file, "remove_extra_whitespaces", metadata.remove_extra_whitespaces));
  return metadata;
}

}  // namespace

Expected<std::unique_ptr<Tokenizer>> tokenizer_of(const GgufTokenizerMetadata& metadata) {
  AERIE_RETURN_IF_ERROR(check_counts(metadata));
  auto parts = metadata.model == "gpt2" ? byte_level(metadata) : sentencepiece(metadata);
  if (!parts.ok()) return parts.status();
  parts->gguf = metadata;
  return std::unique_ptr<Tokenizer>(std::make_unique<PipelineTokenizer>(std::move(parts).value()));
}

Expected<std::unique_ptr<Tokenizer>> Tokenizer::from_gguf(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(const GgufTokenizerMetadata metadata, read_metadata(file));
  return in_context(tokenizer_of(metadata), file.name());
}

}  // namespace aerie

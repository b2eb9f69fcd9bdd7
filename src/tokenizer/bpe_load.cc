// Building a BpeTokenizer from what a file says, which is hostile until it is checked.
#include <fmt/format.h>

#include <limits>
#include <utility>

#include "format/text.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"

namespace aerie {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kMerges = "tokenizer.ggml.merges";

// Control tokens that end a reply whatever the metadata says: files often name only one of them as
// EOS, and a model that closes its turn with another would never stop.
constexpr std::string_view kEndNames[] = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|end|>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "</s>",
    "<eos>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",  // DeepSeek's
};

Status invalid(std::string message) {
  return {StatusCode::kInvalidData, std::move(message)};
}

// A hostile name of a megabyte has no place in a message.
constexpr size_t kShownBytes = 40;

}  // namespace

Expected<std::unique_ptr<BpeTokenizer>> BpeTokenizer::create(const BpeData& data) {
  AERIE_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::create(data.pre));
  std::unique_ptr<BpeTokenizer> result(new BpeTokenizer(std::move(pre_tokenizer)));
  AERIE_RETURN_IF_ERROR(result->read_tokens(data));
  AERIE_RETURN_IF_ERROR(result->read_bytes());
  AERIE_RETURN_IF_ERROR(result->read_merges(data));
  AERIE_RETURN_IF_ERROR(result->read_ids(data));
  result->collect_specials();
  result->collect_ends(data);
  return result;
}

Status BpeTokenizer::read_tokens(const BpeData& data) {
  const size_t count = data.tokens.size();
  if (count == 0) return invalid(fmt::format("{} is empty", kTokens));
  if (count >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return invalid(fmt::format("{} has {} entries, more than ids can count", kTokens, count));
  }
  if (data.types.size() != count) {
    return invalid(fmt::format("{} has {} entries and {} has {}; they must be as many", kTypes,
                               data.types.size(), kTokens, count));
  }
  std::string piece;
  for (size_t id = 0; id < count; ++id) {
    const int64_t type = data.types[id];
    if (type == 6) {
      return {StatusCode::kUnsupported,
              fmt::format("{} of token {} is 6 (byte), which belongs to SentencePiece vocabularies",
                          kTypes, id)};
    }
    if (type < 1 || type > 6) {
      return invalid(fmt::format("{} of token {} is {}; 1 to 6 are defined", kTypes, id, type));
    }
    types_.push_back(static_cast<TokenType>(type));
    const std::string& name = data.tokens[id];
    const bool spelled = types_[id] == TokenType::kNormal || types_[id] == TokenType::kUnused;
    piece.clear();
    // A name that spells no bytes stands for itself, as in Hugging Face's decoder; encoding never
    // gives such a token.
    if (!spelled || !append_named_bytes(name, piece)) piece = name;
    names_.add(name);
    pieces_.add(piece);
  }
  by_name_.reserve(count);
  for (size_t id = 0; id < count; ++id) {
    const auto [at, added] = by_name_.emplace(names_[id], static_cast<int32_t>(id));
    if (!added) {
      return invalid(fmt::format("{} has '{}' twice, at {} and {}", kTokens,
                                 printable(names_[id], kShownBytes), at->second, id));
    }
  }
  return {};
}

Status BpeTokenizer::read_bytes() {
  std::string name;
  for (int byte = 0; byte < 256; ++byte) {
    name.clear();
    append_byte_name(static_cast<uint8_t>(byte), name);
    const int32_t id = find(name);
    // A control token may be called "#"; it is not what text encodes to.
    const bool usable = id >= 0 && types_[static_cast<size_t>(id)] == TokenType::kNormal;
    byte_ids_[static_cast<size_t>(byte)] = usable ? id : -1;
    if (usable) continue;
    missing_bytes_ += static_cast<char>(byte);
    if ((byte >= 0x20 && byte < 0x7F) || byte == '\n') {
      return {StatusCode::kUnsupported,
              fmt::format("{} has no token for byte 0x{:02x}, so this is not a byte-level "
                          "vocabulary",
                          kTokens, byte)};
    }
  }
  return {};
}

Status BpeTokenizer::read_merges(const BpeData& data) {
  if (data.merges.size() >= MergeTable::kNoRank) {
    return invalid(fmt::format("{} has too many entries", kMerges));
  }
  std::vector<MergeRule> rules;
  rules.reserve(data.merges.size());
  std::string joined;
  for (const std::string& merge : data.merges) {
    const auto broken = [&](const char* why) {
      return invalid(fmt::format("{}: entry {}, '{}', {}", kMerges, rules.size(),
                                 printable(merge, kShownBytes), why));
    };
    const size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
      return broken("is not two tokens with a space between them");
    }
    const std::string_view left = std::string_view(merge).substr(0, space);
    const std::string_view right = std::string_view(merge).substr(space + 1);
    joined.assign(left).append(right);
    const MergeRule rule{find(left), find(right), find(joined)};
    if (rule.left < 0 || rule.right < 0)
      return broken("joins a token that is not in the vocabulary");
    if (rule.result < 0) return broken("makes a token that is not in the vocabulary");
    rules.push_back(rule);
  }
  merges_ = MergeTable(rules, vocab_size());
  if (const uint32_t rank = merges_.duplicate(); rank != MergeTable::kNoRank) {
    return invalid(fmt::format("{}: entry {}, '{}', is there twice", kMerges, rank,
                               printable(data.merges[rank], kShownBytes)));
  }
  return {};
}

Status BpeTokenizer::read_ids(const BpeData& data) {
  const std::pair<const char*, std::optional<int64_t>> ids[] = {
      {"bos", data.bos}, {"eos", data.eos}, {"eot", data.eot}, {"eom", data.eom}};
  for (const auto& [name, id] : ids) {
    if (id && (*id < 0 || *id >= vocab_size())) {
      return invalid(fmt::format("tokenizer.ggml.{}_token_id is {}, and there are {} tokens", name,
                                 *id, vocab_size()));
    }
  }
  bos_ = static_cast<int32_t>(data.bos.value_or(-1));
  eos_ = static_cast<int32_t>(data.eos.value_or(-1));
  add_bos_ = data.add_bos;
  add_eos_ = data.add_eos;
  if ((add_bos_ && bos_ < 0) || (add_eos_ && eos_ < 0)) {
    const char* name = add_bos_ && bos_ < 0 ? "bos" : "eos";
    return invalid(
        fmt::format("tokenizer.ggml.add_{0}_token is true, but there is no "
                    "tokenizer.ggml.{0}_token_id",
                    name));
  }
  return {};
}

void BpeTokenizer::collect_specials() {
  std::vector<std::pair<std::string_view, int32_t>> user_defined, specials;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const bool user = types_[static_cast<size_t>(id)] == TokenType::kUserDefined;
    if (user) user_defined.emplace_back(pieces_[static_cast<size_t>(id)], id);
    if (user || is_control(id)) specials.emplace_back(pieces_[static_cast<size_t>(id)], id);
  }
  user_defined_ = SpecialTokens(std::move(user_defined));
  specials_ = SpecialTokens(std::move(specials));
}

void BpeTokenizer::collect_ends(const BpeData& data) {
  ends_.assign(types_.size(), false);
  for (const auto& id : {data.eos, data.eot, data.eom}) {
    if (id) ends_[static_cast<size_t>(*id)] = true;
  }
  for (const std::string_view name : kEndNames) {
    const int32_t id = find(name);
    if (id >= 0 && is_control(id)) ends_[static_cast<size_t>(id)] = true;
  }
}

}  // namespace aerie

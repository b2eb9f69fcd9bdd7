// Byte-level byte-pair encoding (Radford et al. 2019), as Hugging Face's tokenizers do it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "tokenizer/merges.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

// tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
};

// What a file says, unchecked; the comments name the keys.
struct BpeData {
  std::vector<std::string>
      tokens;                  // tokenizer.ggml.tokens: id -> name; bytes spelled as GPT-2 does
  std::vector<int64_t> types;  // tokenizer.ggml.token_type, one for each token
  std::vector<std::string> merges;            // tokenizer.ggml.merges: "left right", by rank
  std::string pre = "gpt-2";                  // tokenizer.ggml.pre
  std::optional<int64_t> bos, eos, eot, eom;  // tokenizer.ggml.bos_token_id, ...
  bool add_bos = false;                       // tokenizer.ggml.add_bos_token
  bool add_eos = false;                       // tokenizer.ggml.add_eos_token
};

// Strings one after the other in one piece of memory.
class StringTable {
 public:
  void add(std::string_view text) {
    bytes_ += text;
    ends_.push_back(bytes_.size());
  }
  std::string_view operator[](size_t index) const {
    return std::string_view(bytes_).substr(ends_[index], ends_[index + 1] - ends_[index]);
  }

 private:
  std::string bytes_;
  std::vector<size_t> ends_ = {0};
};

class BpeTokenizer final : public Tokenizer {
 public:
  // kInvalidData, naming the key, for data that contradicts itself; kUnsupported for a
  // pre-tokenizer that is not known, a vocabulary that is not byte-level (a printable ASCII
  // character has no token), and SentencePiece's byte tokens.
  static Expected<std::unique_ptr<BpeTokenizer>> create(const BpeData& data);

  int vocab_size() const override { return static_cast<int>(types_.size()); }
  void encode(std::string_view text, const EncodeOptions& options,
              std::vector<int32_t>& ids) const override;
  std::string_view piece(int32_t id) const override { return pieces_[static_cast<size_t>(id)]; }
  std::string_view missing_bytes() const override { return missing_bytes_; }
  bool is_control(int32_t id) const override {
    const TokenType type = types_[static_cast<size_t>(id)];
    return type == TokenType::kControl || type == TokenType::kUnknown;
  }
  bool is_end(int32_t id) const override { return ends_[static_cast<size_t>(id)]; }
  int32_t bos() const override { return bos_; }
  int32_t eos() const override { return eos_; }
  int32_t find(std::string_view name) const override;

 private:
  struct Scratch;
  explicit BpeTokenizer(PreTokenizer pre_tokenizer) : pre_tokenizer_(std::move(pre_tokenizer)) {}
  Status read_tokens(const BpeData& data);
  Status read_bytes();
  Status read_merges(const BpeData& data);
  Status read_ids(const BpeData& data);
  void collect_specials();
  void collect_ends(const BpeData& data);
  void encode_plain(std::string_view text, Scratch& scratch, std::vector<int32_t>& ids) const;

  PreTokenizer pre_tokenizer_;
  StringTable names_;                                      // as the vocabulary has them
  StringTable pieces_;                                     // as text
  std::unordered_map<std::string_view, int32_t> by_name_;  // views into names_
  std::vector<TokenType> types_;
  std::vector<bool> ends_;
  std::array<int32_t, 256> byte_ids_{};  // -1: missing
  std::string missing_bytes_;
  MergeTable merges_;
  SpecialTokens user_defined_;  // found in every text
  SpecialTokens specials_;      // these and control tokens
  int32_t bos_ = -1, eos_ = -1;
  bool add_bos_ = false, add_eos_ = false;
};

}  // namespace aerie

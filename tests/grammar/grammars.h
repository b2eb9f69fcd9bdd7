// A vocabulary for tests of grammars, and what they do with it.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace aerie::test {

// The 256 bytes as ids 0 to 255 (but for those left out), then some longer pieces, a control token,
// two end tokens and a token without bytes.
class ToyTokenizer : public Tokenizer {
 public:
  explicit ToyTokenizer(std::string_view without = {});

  int vocab_size() const override { return static_cast<int>(pieces_.size()); }
  Status encode(std::string_view, const EncodeOptions&, std::vector<int32_t>&) const override;
  std::string_view piece(int32_t id) const override { return pieces_[static_cast<size_t>(id)]; }
  std::string_view missing_bytes() const override { return missing_; }
  bool strips_leading_space() const override { return false; }
  bool is_control(int32_t id) const override;
  bool is_end(int32_t id) const override { return id == end_ || id == end_ + 1; }
  int32_t bos() const override { return -1; }
  int32_t eos() const override { return end_; }
  int32_t unk() const override { return -1; }
  int32_t pad() const override { return -1; }
  int32_t find(std::string_view) const override { return -1; }
  Expected<GgufTokenizerMetadata> gguf_metadata() const override;

  int32_t control() const { return end_ - 1; }

 private:
  std::vector<std::string> pieces_;
  std::string missing_;
  int32_t end_ = 0;
};

const ToyTokenizer& toy();
std::shared_ptr<const TokenTrie> toy_trie();

// Null, failing the test, if it is refused.
std::shared_ptr<const Grammar> compile(GrammarKind kind, std::string_view text);
std::shared_ptr<const Grammar> compile(const GrammarSpec& spec,
                                       std::shared_ptr<const TokenTrie> trie);
// Of what is refused; fails the test if it is not.
Status refusal(GrammarKind kind, std::string_view text);

// Whether the bytes, one token each, are a whole output.
bool accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text);
// What the constraint is after these bytes, null if they are not allowed.
std::unique_ptr<TokenConstraint> after(const std::shared_ptr<const Grammar>& grammar,
                                       std::string_view text);

// The allowed ids.
std::vector<int32_t> allowed(const TokenConstraint& constraint, int vocab_size);

// An output of tokens drawn from masks; the longer it is, the more it is drawn towards an end.
// Nothing if no end was found by that.
std::optional<std::string> try_random_output(const std::shared_ptr<const Grammar>& grammar,
                                             const Tokenizer& tokenizer, std::mt19937& random);
// The same; fails the test if no end is found.
std::string random_output(const std::shared_ptr<const Grammar>& grammar, const Tokenizer& tokenizer,
                          std::mt19937& random);

}  // namespace aerie::test

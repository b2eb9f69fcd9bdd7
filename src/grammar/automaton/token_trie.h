// The tokens of a vocabulary by their bytes.
#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace aerie {

// No UTF-8 has this byte, so control tokens are spelled between two of it.
inline constexpr char kMarkerByte = '\xFF';

// The nodes stand in preorder, so that a walk is a loop and leaving a subtree out is one step.
class TokenTrie {
 public:
  struct Node {
    uint8_t byte;
    uint16_t depth;        // of the root's children: 1
    uint32_t after;        // the node behind the subtree
    uint32_t first_token;  // in tokens(); up to the next node's
  };

  explicit TokenTrie(const Tokenizer& tokenizer);

  int vocab_size() const { return static_cast<int>(starts_.size()) - 1; }
  // All but the root, and one more behind the last.
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  int max_depth() const { return max_depth_; }

  // Empty for what a grammar cannot ask for: end tokens, tokens without bytes, ids that are not in
  // the vocabulary. Of a control token marker_bytes(), which no text has.
  std::string_view bytes(int32_t token) const;
  // What stands for the control token of that name; its text where there is none.
  std::string marker_bytes(std::string_view name) const;
  bool is_end(int32_t token) const;
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  // The bytes that have a token of their own: what is made of them alone can be spelled.
  const std::bitset<256>& spellable() const { return spellable_; }

 private:
  void add(int32_t id, const Tokenizer& tokenizer);
  void build();

  std::string text_;
  std::vector<uint32_t> starts_;  // of each token's bytes in text_, and one more
  std::vector<int32_t> end_tokens_;
  std::set<std::string, std::less<>> controls_;  // the names of control tokens
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  std::bitset<256> spellable_;
  int max_depth_ = 0;
};

}  // namespace aerie

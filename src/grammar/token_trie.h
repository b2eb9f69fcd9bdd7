// The tokens of a vocabulary by their bytes, in the order in which a walk over them meets them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "grammar/grammar_graph.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

// Immutable after construction: safe to share between threads.
class TokenTrie {
 public:
  // A prefix of at least one token. Nodes stand in preorder: what begins with node i are the nodes
  // from i up to its `next`.
  struct Node {
    uint32_t next = 0;
    uint32_t first_rank = 0;  // of the tokens that begin with this
    uint16_t depth = 0;       // bytes before this one
    uint8_t byte = 0;
    ByteSet all;  // bytes of what begins with this node, its own included
  };

  explicit TokenTrie(const Tokenizer& tokenizer);

  const std::vector<Node>& nodes() const { return nodes_; }
  // The tokens of a prefix: those whose bytes are just it have the ranks from first_rank up to
  // first_rank of the next node.
  uint32_t rank_end(uint32_t node) const {
    return node < nodes_.size() ? nodes_[node].first_rank : static_cast<uint32_t>(ids_.size());
  }
  const std::vector<int32_t>& ids() const { return ids_; }  // by rank

  int vocab_size() const { return static_cast<int>(offsets_.size()) - 1; }
  // Empty for control tokens, end tokens and ids out of range.
  std::string_view bytes(int32_t id) const;
  bool is_end(int32_t id) const;
  const std::vector<int32_t>& ends() const { return ends_; }
  // Bytes that are tokens of their own.
  const ByteSet& single_bytes() const { return single_bytes_; }
  int max_depth() const { return max_depth_; }

 private:
  void build(const std::vector<int32_t>& sorted);

  std::vector<Node> nodes_;
  std::vector<int32_t> ids_;
  std::string text_;
  std::vector<uint32_t> offsets_;
  std::vector<int32_t> ends_;
  ByteSet single_bytes_;
  int max_depth_ = 0;
};

}  // namespace aerie

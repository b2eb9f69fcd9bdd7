#include "grammar/token_trie.h"

#include <algorithm>
#include <string>

namespace aerie {

namespace {
constexpr size_t kLongestToken = 4096;
}

TokenTrie::TokenTrie(const Tokenizer& tokenizer) {
  const int vocab = tokenizer.vocab_size();
  std::vector<int32_t> sorted;
  offsets_.push_back(0);
  for (int32_t id = 0; id < vocab; ++id) {
    if (tokenizer.is_end(id)) {
      ends_.push_back(id);
    } else if (!tokenizer.is_control(id)) {
      const std::string_view piece = tokenizer.piece(id);
      if (!piece.empty() && piece.size() <= kLongestToken) {
        text_ += piece;
        sorted.push_back(id);
      }
      if (piece.size() == 1) single_bytes_.set(static_cast<uint8_t>(piece[0]));
    }
    offsets_.push_back(static_cast<uint32_t>(text_.size()));
  }
  std::sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  build(sorted);
}

void TokenTrie::build(const std::vector<int32_t>& sorted) {
  std::vector<uint32_t> path;  // the nodes of the last token's bytes
  const auto close = [&](size_t depth) {
    while (path.size() > depth) {
      Node& node = nodes_[path.back()];
      node.next = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
      if (!path.empty()) nodes_[path.back()].all |= node.all;
    }
  };
  std::string_view last;
  for (const int32_t id : sorted) {
    const std::string_view text = bytes(id);
    const auto [mine, theirs] = std::mismatch(text.begin(), text.end(), last.begin(), last.end());
    close(static_cast<size_t>(mine - text.begin()));
    while (path.size() < text.size()) {
      Node node;
      node.first_rank = static_cast<uint32_t>(ids_.size());
      node.depth = static_cast<uint16_t>(path.size());
      node.byte = static_cast<uint8_t>(text[path.size()]);
      node.all.set(node.byte);
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(node);
    }
    ids_.push_back(id);
    last = text;
    max_depth_ = std::max(max_depth_, static_cast<int>(text.size()));
  }
  close(0);
}

std::string_view TokenTrie::bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return std::string_view(text_).substr(offsets_[id], offsets_[id + 1] - offsets_[id]);
}

bool TokenTrie::is_end(int32_t id) const {
  return std::binary_search(ends_.begin(), ends_.end(), id);
}

}  // namespace aerie

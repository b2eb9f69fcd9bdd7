#include "grammar/automaton/token_trie.h"

#include <algorithm>

namespace aerie {

namespace {

std::string between_marker_bytes(std::string_view name) {
  return std::string(1, kMarkerByte).append(name) + kMarkerByte;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) {
  const int32_t size = tokenizer.vocab_size();
  starts_.push_back(0);
  for (int32_t id = 0; id < size; ++id) {
    add(id, tokenizer);
    starts_.push_back(static_cast<uint32_t>(text_.size()));
  }
  spellable_.set(static_cast<uint8_t>(kMarkerByte), !controls_.empty());
  build();
}

void TokenTrie::add(int32_t id, const Tokenizer& tokenizer) {
  // Longer ones are left to be spelled by others.
  constexpr size_t kMaxBytes = 4096;
  if (tokenizer.is_end(id)) return end_tokens_.push_back(id);
  const std::string_view piece = tokenizer.piece(id);
  if (piece.size() > kMaxBytes || piece.find(kMarkerByte) != std::string_view::npos) return;
  if (tokenizer.is_control(id)) {
    if (piece.empty()) return;
    text_ += between_marker_bytes(piece);
    controls_.emplace(piece);
    return;
  }
  text_ += piece;
  if (piece.size() == 1) spellable_.set(static_cast<uint8_t>(piece[0]));
}

std::string TokenTrie::marker_bytes(std::string_view name) const {
  return controls_.contains(name) ? between_marker_bytes(name) : std::string(name);
}

void TokenTrie::build() {
  std::vector<int32_t> order;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (!bytes(id).empty()) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return bytes(a) < bytes(b); });
  std::vector<uint32_t> path;  // the nodes on the way to the newest one
  std::string_view previous;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].after = static_cast<uint32_t>(nodes_.size());
    }
  };
  for (const int32_t id : order) {
    const std::string_view piece = bytes(id);
    const auto differ =
        std::mismatch(piece.begin(), piece.end(), previous.begin(), previous.end()).first;
    close(static_cast<size_t>(differ - piece.begin()));
    for (size_t depth = path.size(); depth < piece.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({static_cast<uint8_t>(piece[depth]), static_cast<uint16_t>(depth + 1), 0,
                        static_cast<uint32_t>(tokens_.size())});
    }
    max_depth_ = std::max(max_depth_, static_cast<int>(piece.size()));
    tokens_.push_back(id);
    previous = piece;
  }
  close(0);
  const auto count = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({0, 0, count + 1, static_cast<uint32_t>(tokens_.size())});
}

std::string_view TokenTrie::bytes(int32_t token) const {
  if (token < 0 || token >= vocab_size()) return {};
  const auto at = static_cast<size_t>(token);
  return std::string_view(text_).substr(starts_[at], starts_[at + 1] - starts_[at]);
}

bool TokenTrie::is_end(int32_t token) const {
  return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

}  // namespace aerie

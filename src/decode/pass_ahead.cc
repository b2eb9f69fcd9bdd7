#include "decode/pass_ahead.h"

#include <algorithm>

namespace aerie {
namespace {

constexpr int32_t kNotYet = -1;  // the token of a node

}  // namespace

DraftsAhead* PassAhead::of(Rounds rounds, Pieces pieces) {
  rounds_ = rounds;
  begun_rows_ = 0;
  while (trees_.size() < rounds.size()) trees_.emplace_back().nodes.reserve(max_nodes_);
  return pieces.empty() ? this : nullptr;
}

// A chain for each round whose draft was asked for. False: there are others.
bool PassAhead::make_trees(std::span<const Chain> chains) {
  if (chains.size() != drafts_.asked()) return false;
  for (size_t i = 0; i < rounds_.size(); ++i) {
    const Sequence& sequence = *rounds_[i];
    TokenTree& tree = trees_[i];
    tree.clear();
    const auto chain = std::ranges::find(chains, sequence.id, &Chain::id);
    if (chain == chains.end()) continue;
    if (sequence.constraint != nullptr || chain->rows.size() > max_nodes_) return false;
    for (size_t node = 0; node < chain->rows.size(); ++node) {
      const auto at = static_cast<int32_t>(node);
      TokenTree::Node& to = tree.nodes.emplace_back();
      to.token = kNotYet;
      to.parent = at - 1;
      to.depth = at + 1;
    }
  }
  return true;
}

void PassAhead::expect(std::span<const Chain> chains, const FoundTokens& found) {
  if (!make_trees(chains)) return;
  drafts_.reserve(rounds_, {}, std::span(trees_).first(rounds_.size()));
  pass_.clear();
  found_rows_.clear();
  for (size_t i = 0; i < rounds_.size(); ++i) {
    const auto chain = std::ranges::find(chains, rounds_[i]->id, &Chain::id);
    pass_.add_round(*rounds_[i], trees_[i]);
    found_rows_.push_back(-1);
    if (chain == chains.end()) continue;
    // What has no room was left out.
    if (trees_[i].nodes.size() != chain->rows.size()) return;
    found_rows_.insert(found_rows_.end(), chain->rows.begin(), chain->rows.end());
  }
  if (model_.begin(pass_.batch(), cache_, found, found_rows_)) begun_rows_ = pass_.batch().size();
}

}  // namespace aerie

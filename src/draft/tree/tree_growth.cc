#include "draft/tree/tree_growth.h"

#include <algorithm>
#include <cassert>
#include <span>

namespace aerie {
namespace {

size_t slot_of(int32_t node) {
  return static_cast<size_t>(node + 1);
}

// Appends to into.proposals those of `from`, whose node i is into's node places[i + 1]; without
// `places` the trees are one.
void append_proposals(const TokenTree& from, std::span<const int32_t> places, TokenTree& into) {
  const auto add = [&](TokenTree::Proposal proposal) {
    if (!places.empty()) proposal.node = places[slot_of(proposal.node)];
    into.proposals.push_back(proposal);
  };
  if (!from.proposals.empty()) {
    for (const TokenTree::Proposal& proposal : from.proposals) add(proposal);
    return;
  }
  for (int32_t i = 0; i < from.size(); ++i) {
    const TokenTree::Node& node = from.nodes[static_cast<size_t>(i)];
    if (node.role == NodeRole::kDraft) add({i, node.proposal, node.without_replacement});
  }
}

}  // namespace

bool TreeGrowth::worse(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability < b.probability : a.order > b.order;
}

void TreeGrowth::reserve(int nodes, int candidates) {
  heap_.reserve(static_cast<size_t>(candidates));
  children_.reserve(slot_of(nodes));
  probabilities_.reserve(slot_of(nodes));
}

void TreeGrowth::start(TokenTree& tree, const TreeLimits& limits) {
  assert(tree.empty());
  tree_ = &tree;
  limits_ = limits;
  offers_ = 0;
  heap_.clear();
  children_.assign(1, 0);
  probabilities_.assign(1, 1.0);
}

void TreeGrowth::offer(int32_t token, int32_t parent, double probability, int32_t tag) {
  assert(-1 <= parent && parent < tree_->size());
  const int depth = parent < 0 ? 1 : tree_->nodes[static_cast<size_t>(parent)].depth + 1;
  if (depth > limits_.max_depth) return;
  heap_.push_back(
      {std::min(probability, probabilities_[slot_of(parent)]), offers_++, token, parent, tag});
  std::push_heap(heap_.begin(), heap_.end(), worse);
}

std::optional<TreeGrowth::Grown> TreeGrowth::grow() {
  if (tree_->size() >= limits_.max_nodes) return std::nullopt;
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), worse);
    const Candidate best = heap_.back();
    heap_.pop_back();
    int32_t& siblings = children_[slot_of(best.parent)];
    if (siblings >= limits_.max_children) continue;
    ++siblings;
    const int32_t node =
        tree_->add(best.token, best.parent, nullptr, static_cast<float>(best.probability));
    children_.push_back(0);
    probabilities_.push_back(best.probability);
    return Grown{node, best.probability, best.tag};
  }
  return std::nullopt;
}

bool may_be_cut(const TokenTree& tree) {
  return tree.proposals.empty() && std::ranges::all_of(tree.nodes, [](const TokenTree::Node& node) {
           return node.proposal == nullptr && node.role == NodeRole::kDraft;
         });
}

void TreeEditor::reserve(int nodes) {
  growth_.reserve(nodes, nodes);
  kept_.nodes.reserve(slot_of(nodes));
  for (auto* list : {&first_child_, &last_child_, &next_, &same_}) list->reserve(slot_of(nodes));
}

void TreeEditor::add_child(int32_t parent, int32_t child) {
  int32_t& last = last_child_[slot_of(parent)];
  (last < 0 ? first_child_[slot_of(parent)] : next_[slot_of(last)]) = child;
  last = child;
}

void TreeEditor::list_children(const TokenTree& tree) {
  const size_t count = slot_of(tree.size());
  for (auto* list : {&first_child_, &last_child_, &next_}) list->assign(count, -1);
  for (int32_t i = 0; i < tree.size(); ++i) {
    add_child(tree.nodes[static_cast<size_t>(i)].parent, i);
  }
}

void TreeEditor::keep_best(TokenTree& tree, const TreeLimits& limits) {
  list_children(tree);
  kept_.clear();
  growth_.start(kept_, limits);
  const auto offer_children = [&](int32_t parent, int32_t kept) {
    for (int32_t i = first_child_[slot_of(parent)]; i >= 0; i = next_[slot_of(i)]) {
      const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
      growth_.offer(node.token, kept, static_cast<double>(node.probability), i);
    }
  };
  offer_children(-1, -1);
  while (const auto grown = growth_.grow()) {
    kept_.nodes.back().role = tree.nodes[static_cast<size_t>(grown->tag)].role;
    offer_children(grown->tag, grown->node);
  }
  tree.nodes.assign(kept_.nodes.begin(), kept_.nodes.end());
}

int TreeEditor::merge_proposals(TokenTree& into, const TokenTree& other) {
  if (into.proposals.empty()) append_proposals(into, {}, into);
  const int added = merge(into, other);
  append_proposals(other, same_, into);
  return added;
}

int TreeEditor::merge(TokenTree& into, const TokenTree& other) {
  const int before = into.size();
  list_children(into);
  same_.assign(slot_of(other.size()), -1);
  for (int32_t i = 0; i < other.size(); ++i) {
    const TokenTree::Node& node = other.nodes[static_cast<size_t>(i)];
    const int32_t parent = same_[slot_of(node.parent)];
    const auto is_same = [&](const TokenTree::Node& candidate) {
      return candidate.token == node.token && candidate.role == node.role;
    };
    int32_t found = first_child_[slot_of(parent)];
    while (found >= 0 && !is_same(into.nodes[static_cast<size_t>(found)])) {
      found = next_[slot_of(found)];
    }
    if (found < 0) {
      found = into.add(node.token, parent, nullptr, node.probability);
      into.nodes.back().role = node.role;
      for (auto* list : {&first_child_, &last_child_, &next_}) list->push_back(-1);
      add_child(parent, found);
    } else {
      float& probability = into.nodes[static_cast<size_t>(found)].probability;
      probability = std::max(probability, node.probability);
    }
    same_[slot_of(i)] = found;
  }
  return into.size() - before;
}

}  // namespace aerie

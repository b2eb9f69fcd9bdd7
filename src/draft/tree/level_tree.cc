#include "draft/tree/level_tree.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <limits>
#include <numeric>

namespace aerie {
namespace {

size_t at(int32_t node) {
  return static_cast<size_t>(node);
}

// NaN is none.
double bounded(double probability) {
  return probability > 0.0 ? std::min(probability, 1.0) : 0.0;
}

}  // namespace

// A shape that the limits would make themselves has no more than max_nodes.
size_t LevelTree::most_nodes(const LevelLimits& limits) {
  if (limits.shape != nullptr) return static_cast<size_t>(limits.shape->size());
  const int depth = std::min(limits.max_depth, limits.max_nodes);
  const int width = limits.width > 0 ? limits.width : limits.top_k;
  const int grown = limits.top_k + (depth - 1) * width * limits.top_k;
  return static_cast<size_t>(std::max(limits.max_nodes, grown));
}

void LevelTree::reserve(const LevelLimits& limits) {
  const size_t nodes = most_nodes(limits);
  nodes_.reserve(nodes);
  frontier_.reserve(nodes);
  best_.reserve(nodes);
  order_.reserve(nodes);
  in_tree_.reserve(nodes);
}

void LevelTree::start(const LevelLimits& limits) {
  limits_ = limits;
  root_ = Node();
  root_.depth = 0;
  nodes_.clear();
  frontier_.clear();
  level_begin_ = 0;
  entrance_ = 0.0;
  if (limits.max_nodes > 0 && limits.max_depth > 0) frontier_.push_back(-1);
}

int LevelTree::wanted(int32_t node) const {
  if (limits_.shape == nullptr) return limits_.top_k;
  int ranks = 0;
  for (const int32_t child : limits_.shape->children(node < 0 ? -1 : nodes_[at(node)].place)) {
    if (child < limits_.max_nodes) {
      ranks = std::max(ranks, limits_.shape->nodes()[at(child)].rank + 1);
    }
  }
  return ranks;
}

bool LevelTree::add(int32_t parent, const Child& child, int32_t place) {
  const Node& above = parent < 0 ? root_ : nodes_[at(parent)];
  Node node;
  node.token = child.token;
  node.parent = parent;
  node.depth = above.depth + 1;
  node.place = place;
  node.probability = above.probability * bounded(child.probability);
  if (place < 0 && node.probability < limits_.min_probability) return false;
  // Neither it nor what is below it could come into the tree.
  if (place < 0 && node.probability < entrance_) return false;
  nodes_.push_back(node);
  return true;
}

void LevelTree::expand(int32_t node, std::span<const Child> children) {
  const auto first = static_cast<int32_t>(nodes_.size());
  assert((node < 0 ? root_ : nodes_[at(node)]).first_child < 0);
  if (limits_.shape != nullptr) {
    const int32_t place = node < 0 ? -1 : nodes_[at(node)].place;
    for (const int32_t child : limits_.shape->children(place)) {
      const auto rank = at(limits_.shape->nodes()[at(child)].rank);
      if (child < limits_.max_nodes && rank < children.size()) add(node, children[rank], child);
    }
  } else {
    double covered = 0.0;
    const size_t most = std::min(children.size(), static_cast<size_t>(limits_.top_k));
    for (size_t i = 0; i < most && covered < limits_.top_p; ++i) {
      add(node, children[i], -1);
      covered += bounded(children[i].probability);
    }
  }
  // nodes_ may have moved.
  Node& parent = node < 0 ? root_ : nodes_[at(node)];
  parent.first_child = first;
  parent.child_count = static_cast<int32_t>(nodes_.size()) - first;
}

bool LevelTree::better(int32_t a, int32_t b) const {
  const double pa = nodes_[at(a)].probability, pb = nodes_[at(b)].probability;
  return pa != pb ? pa > pb : a < b;
}

void LevelTree::find_entrance() {
  const auto most = static_cast<size_t>(limits_.max_nodes);
  if (nodes_.size() < most) return;
  best_.clear();
  for (const Node& node : nodes_) best_.push_back(node.probability);
  const auto worst = best_.begin() + static_cast<std::ptrdiff_t>(most - 1);
  std::nth_element(best_.begin(), worst, best_.end(), std::greater<>());
  entrance_ = *worst;
}

void LevelTree::advance() {
  frontier_.clear();
  const size_t begin = level_begin_;
  level_begin_ = nodes_.size();
  if (begin == nodes_.size() || nodes_[begin].depth >= limits_.max_depth) return;
  if (limits_.shape == nullptr && !limits_.beams) find_entrance();
  for (size_t i = begin; i < nodes_.size(); ++i) {
    const auto node = static_cast<int32_t>(i);
    const bool runs = limits_.shape == nullptr ? nodes_[i].probability > entrance_ &&
                                                     nodes_[i].probability >= limits_.least_path
                                               : wanted(node) > 0;
    if (runs) frontier_.push_back(node);
  }
  if (limits_.shape == nullptr) keep_widest();
}

size_t LevelTree::width() const {
  return static_cast<size_t>(limits_.width > 0 ? limits_.width : limits_.top_k);
}

// Leaves the best of the frontier.
void LevelTree::keep_widest() {
  const size_t most = width();
  if (frontier_.size() <= most) return;
  const auto end = frontier_.begin() + static_cast<std::ptrdiff_t>(most);
  std::nth_element(frontier_.begin(), end, frontier_.end(),
                   [&](int32_t a, int32_t b) { return better(a, b); });
  frontier_.resize(most);
  std::ranges::sort(frontier_);
}

std::span<const LevelTree::Node> LevelTree::children(int32_t node) const {
  const Node& parent = node < 0 ? root_ : nodes_[at(node)];
  if (parent.first_child < 0) return {};
  return std::span(nodes_).subspan(at(parent.first_child), at(parent.child_count));
}

int32_t LevelTree::find_child(int32_t node, int32_t token) const {
  const std::span<const Node> list = children(node);
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].token != token) continue;
    const Node& parent = node < 0 ? root_ : nodes_[at(node)];
    return parent.first_child + static_cast<int32_t>(i);
  }
  return -1;
}

// Leaves in order_ the nodes on the paths to the best ones of the last level.
void LevelTree::keep_beams() {
  if (nodes_.empty()) return;
  frontier_.clear();
  for (const int32_t i : order_) {
    if (nodes_[at(i)].depth == nodes_.back().depth) frontier_.push_back(i);
  }
  keep_widest();
  in_tree_.assign(nodes_.size(), -1);
  for (int32_t i : frontier_) {
    for (; i >= 0 && in_tree_[at(i)] < 0; i = nodes_[at(i)].parent) in_tree_[at(i)] = i;
  }
  frontier_.clear();
  std::erase_if(order_, [&](int32_t i) { return in_tree_[at(i)] < 0; });
}

void LevelTree::finish(TokenTree& tree) {
  assert(tree.empty());
  order_.resize(nodes_.size());
  std::iota(order_.begin(), order_.end(), 0);
  if (limits_.shape == nullptr && limits_.beams) keep_beams();
  if (limits_.shape == nullptr) {
    const size_t most = std::min(order_.size(), static_cast<size_t>(limits_.max_nodes));
    std::partial_sort(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(most),
                      order_.end(), [&](int32_t a, int32_t b) { return better(a, b); });
    order_.resize(most);
  }
  in_tree_.assign(nodes_.size(), -1);
  for (const int32_t i : order_) {
    const Node& node = nodes_[at(i)];
    const int32_t parent = node.parent < 0 ? -1 : in_tree_[at(node.parent)];
    const auto probability =
        std::max(static_cast<float>(node.probability), std::numeric_limits<float>::min());
    in_tree_[at(i)] = tree.add(node.token, parent, nullptr, probability);
  }
}

}  // namespace aerie

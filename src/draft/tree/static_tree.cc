#include "draft/tree/static_tree.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <utility>

#include "draft/tree/tree_growth.h"

namespace aerie {
namespace {

constexpr std::string_view kNames[] = {"eagle", "medusa"};

// Of nodes with the same path, the ranks `from` to `to`.
void add_ranks(std::vector<std::string>& paths, std::string_view parent, char from, char to) {
  for (char rank = from; rank <= to; ++rank) paths.push_back(std::string(parent) + rank);
}

std::vector<std::string> eagle_paths() {
  return {"0",   "1",   "2",    "3",    "00",   "01",    "02",   "10",  "11",
          "20",  "21",  "30",   "000",  "001",  "002",   "010",  "011", "020",
          "021", "100", "0000", "0001", "0002", "00000", "00001"};
}

std::vector<std::string> medusa_paths() {
  std::vector<std::string> paths;
  add_ranks(paths, "", '0', '9');
  add_ranks(paths, "0", '0', '9');
  add_ranks(paths, "1", '0', '6');
  add_ranks(paths, "2", '0', '2');
  add_ranks(paths, "3", '0', '1');
  for (char rank = '4'; rank <= '9'; ++rank) paths.push_back({rank, '0'});
  add_ranks(paths, "00", '0', '9');
  add_ranks(paths, "01", '0', '2');
  add_ranks(paths, "02", '0', '1');
  for (char rank = '3'; rank <= '7'; ++rank) paths.push_back({'0', rank, '0'});
  add_ranks(paths, "10", '0', '1');
  paths.emplace_back("200");
  add_ranks(paths, "000", '0', '1');
  return paths;
}

}  // namespace

// Only their order matters.
std::span<const double> usual_rank_probability() {
  static constexpr double kProbability[] = {0.6,   0.15,  0.07,  0.04,  0.025,
                                            0.018, 0.013, 0.010, 0.008, 0.006};
  return kProbability;
}

StaticTree StaticTree::grown(int nodes, std::span<const double> rank_probability, int max_depth) {
  TreeGrowth growth;
  TokenTree grown;  // a node's token is its rank
  growth.start(grown, {.max_nodes = nodes, .max_depth = max_depth});
  const auto offer_children = [&](int32_t parent, double probability) {
    for (size_t rank = 0; rank < rank_probability.size(); ++rank) {
      growth.offer(static_cast<int32_t>(rank), parent, probability * rank_probability[rank]);
    }
  };
  offer_children(-1, 1.0);
  while (const auto node = growth.grow()) offer_children(node->node, node->probability);
  StaticTree tree;
  for (const TokenTree::Node& node : grown.nodes) {
    tree.nodes_.push_back({node.parent, node.token, node.depth, node.probability});
  }
  tree.index_children();
  return tree;
}

StaticTree StaticTree::of_paths(std::span<const std::string> paths,
                                std::span<const double> rank_probability) {
  std::vector<std::pair<double, std::string>> order;  // the likeliest first, then by path
  for (const std::string& path : paths) {
    double probability = 1.0;
    for (const char rank : path) probability *= rank_probability[static_cast<size_t>(rank - '0')];
    order.emplace_back(-probability, path);
  }
  std::ranges::sort(order);
  StaticTree tree;
  std::map<std::string, int32_t> place = {{"", -1}};
  for (const auto& [negative, path] : order) {
    const auto parent = place.find(path.substr(0, path.size() - 1));
    assert(parent != place.end());
    place[path] = tree.size();
    tree.nodes_.push_back({parent->second, path.back() - '0', static_cast<int32_t>(path.size()),
                           static_cast<float>(-negative)});
  }
  tree.index_children();
  return tree;
}

void StaticTree::index_children() {
  std::vector<int> width;
  for (const Node& node : nodes_) {
    width.resize(std::max(width.size(), static_cast<size_t>(node.depth)));
    widest_ = std::max(widest_, ++width[static_cast<size_t>(node.depth) - 1]);
    ranks_ = std::max(ranks_, node.rank + 1);
  }
  deepest_ = static_cast<int>(width.size());
  for (int32_t parent = -1; parent < size(); ++parent) {
    first_.push_back(static_cast<int32_t>(children_.size()));
    for (int32_t i = 0; i < size(); ++i) {
      if (nodes_[static_cast<size_t>(i)].parent == parent) children_.push_back(i);
    }
    std::sort(children_.begin() + first_.back(), children_.end(), [&](int32_t a, int32_t b) {
      return nodes_[static_cast<size_t>(a)].rank < nodes_[static_cast<size_t>(b)].rank;
    });
  }
  first_.push_back(static_cast<int32_t>(children_.size()));
}

std::span<const int32_t> StaticTree::children(int32_t node) const {
  const auto slot = static_cast<size_t>(node + 1);
  return std::span(children_).subspan(static_cast<size_t>(first_[slot]),
                                      static_cast<size_t>(first_[slot + 1] - first_[slot]));
}

const StaticTree* find_static_tree(std::string_view name) {
  static const StaticTree eagle = StaticTree::of_paths(eagle_paths(), usual_rank_probability());
  static const StaticTree medusa = StaticTree::of_paths(medusa_paths(), usual_rank_probability());
  if (name == kNames[0]) return &eagle;
  if (name == kNames[1]) return &medusa;
  return nullptr;
}

std::span<const std::string_view> static_tree_names() {
  return kNames;
}

}  // namespace aerie

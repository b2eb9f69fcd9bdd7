#include "tests/verify/enumeration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace aerie {

void extend(TableTarget& target, Tokens tokens, size_t length, double probability,
            std::map<Tokens, double>& out) {
  if (probability == 0) return;
  if (tokens.size() >= length) {
    tokens.resize(length);
    out[tokens] += probability;
    return;
  }
  const Distribution p = target.after(tokens);
  for (size_t i = 0; i < p.size(); ++i) {
    Tokens longer = tokens;
    longer.push_back(p.ids[i]);
    extend(target, longer, length, probability * p.probs[i], out);
  }
}

std::map<Tokens, double> sequences(TableTarget& target, size_t length) {
  std::map<Tokens, double> all;
  extend(target, {}, length, 1.0, all);
  return all;
}

double bias(TableTarget& target, const Outcome& outcome) {
  const size_t length = outcome.emitted.begin()->first.size();
  std::map<Tokens, double> difference = sequences(target, length);
  for (const auto& [tokens, probability] : outcome.emitted) difference[tokens] -= probability;
  double worst = 0;
  for (const auto& [tokens, by] : difference) worst = std::max(worst, std::abs(by));
  return worst;
}

namespace {

// That the verdict is a path of drafts, and says truly whether a leaf was reached.
Tokens emitted_tokens(const TokenTree& tree, const Verdict& verdict) {
  int32_t node = -1;
  for (const int32_t accepted : verdict.accepted) {
    EXPECT_EQ(tree.nodes[static_cast<size_t>(accepted)].parent, node);
    EXPECT_EQ(tree.nodes[static_cast<size_t>(accepted)].role, NodeRole::kDraft);
    node = accepted;
  }
  const bool leaf =
      std::none_of(tree.nodes.begin(), tree.nodes.end(), [&](const TokenTree::Node& child) {
        return child.parent == node && child.role == NodeRole::kDraft;
      });
  const bool ended_there = verdict.next_token == Verdict::kNone;
  EXPECT_EQ(verdict.bonus, leaf && !ended_there);
  Tokens tokens = path_of(tree, node);
  if (!ended_there) tokens.push_back(verdict.next_token);
  EXPECT_EQ(static_cast<int>(tokens.size()), verdict.emitted());
  return tokens;
}

}  // namespace

Outcome enumerate(TableTarget& target, const DrawTree& draw, const Judge& judge, size_t length) {
  Outcome outcome;
  std::map<Tokens, double> runs;
  EnumeratingDice dice;
  Verdict verdict;
  dice.for_each([&] {
    const TokenTree tree = draw(dice);
    ASSERT_TRUE(tree.is_well_formed());
    target.look_at(&tree);
    judge(tree, target, dice, verdict);
    target.look_at(nullptr);
    runs[emitted_tokens(tree, verdict)] += dice.probability();
    outcome.accepted += dice.probability() * static_cast<double>(verdict.accepted.size());
  });
  for (const auto& [run, probability] : runs) {
    extend(target, run, length, probability, outcome.emitted);
  }
  return outcome;
}

const char* siblings_name(Siblings siblings) {
  constexpr const char* kNames[] = {"PointMass", "Independent", "WithoutReplacement", "Several",
                                    "Mixed"};
  return kNames[static_cast<int>(siblings)];
}

Distribution& TreeSampler::after(const Tokens& path, int sibling) {
  const auto [found, added] = table_.try_emplace({path, sibling});
  if (added) found->second = random_distribution(random_, vocab_, zeros_);
  return found->second;
}

TreeSampler::Draw TreeSampler::draw(const Tokens& path, int sibling, const TokenTree& tree,
                                    int32_t parent, Dice& dice) {
  const bool certain =
      siblings_ == Siblings::kPointMass || (siblings_ == Siblings::kMixed && sibling == 0);
  if (certain) {
    const Distribution& any = after(path, sibling);
    const auto best = std::max_element(any.probs.begin(), any.probs.end()) - any.probs.begin();
    return {any.ids[static_cast<size_t>(best)], {}};
  }
  const Distribution& q = after(path, siblings_ == Siblings::kSeveral ? sibling : 1);
  const bool without = siblings_ == Siblings::kWithoutReplacement || siblings_ == Siblings::kMixed;
  Distribution left;
  double sum = 0;
  for (size_t i = 0; i < q.size(); ++i) {
    const bool gone =
        without &&
        std::any_of(
            tree.proposals.begin(), tree.proposals.end(), [&](const TokenTree::Proposal& earlier) {
              const TokenTree::Node& node = tree.nodes[static_cast<size_t>(earlier.node)];
              return node.parent == parent && earlier.proposal == &q && node.token == q.ids[i];
            });
    if (gone) continue;
    left.ids.push_back(q.ids[i]);
    left.probs.push_back(q.probs[i]);
    sum += q.probs[i];
  }
  if (left.size() == 0) return {};
  for (double& p : left.probs) p /= sum;
  return {dice.draw(parent, left), {0, &q, without}};
}

TokenTree TreeSampler::operator()(Dice& dice) {
  TokenTree tree;
  std::vector<int32_t> node_of(shape_.size(), -2);  // -2: it is not there
  for (size_t i = 0; i < shape_.size(); ++i) {
    const int32_t parent = shape_[i] < 0 ? -1 : node_of[static_cast<size_t>(shape_[i])];
    if (parent < -1 || (wants && !wants(tree, i))) continue;
    const auto sibling =
        std::count(shape_.begin(), shape_.begin() + static_cast<long>(i), shape_[i]);
    Draw drawn = draw(path_of(tree, parent), static_cast<int>(sibling), tree, parent, dice);
    if (drawn.token < 0) continue;
    int32_t node = -1;
    for (int32_t j = 0; j < tree.size() && merges_; ++j) {
      const TokenTree::Node& other = tree.nodes[static_cast<size_t>(j)];
      if (other.parent == parent && other.token == drawn.token) node = j;
    }
    if (node < 0) {
      node = tree.add(drawn.token, parent, drawn.proposal.proposal);
      tree.nodes.back().without_replacement = drawn.proposal.without_replacement;
    }
    node_of[i] = node;
    drawn.proposal.node = node;
    tree.proposals.push_back(drawn.proposal);
  }
  if (!merges_) tree.proposals.clear();
  return tree;
}

}  // namespace aerie

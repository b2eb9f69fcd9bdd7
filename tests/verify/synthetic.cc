#include "tests/verify/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace aerie {
namespace {

// What comes last before a token, of committed tokens and then a path; 0 before the beginning.
int32_t token_at_end(std::span<const int32_t> committed, std::span<const int32_t> path,
                     size_t back) {
  if (path.size() >= back) return path[path.size() - back];
  back -= path.size();
  return committed.size() >= back ? committed[committed.size() - back] : 0;
}

}  // namespace

Tokens path_of(const TokenTree& tree, int32_t node) {
  Tokens path;
  for (; node >= 0; node = tree.nodes[static_cast<size_t>(node)].parent) {
    path.push_back(tree.nodes[static_cast<size_t>(node)].token);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

Distribution random_distribution(std::mt19937_64& random, int vocab, double zeros) {
  std::uniform_real_distribution<double> uniform(0, 1);
  Distribution d;
  const int32_t stays = static_cast<int32_t>(random() % static_cast<size_t>(vocab));
  double sum = 0;
  for (int32_t id = 0; id < vocab; ++id) {
    if (id != stays && uniform(random) < zeros) continue;
    d.ids.push_back(id);
    d.probs.push_back(std::pow(uniform(random), 3) + 1e-3);
    sum += d.probs.back();
  }
  for (double& p : d.probs) p /= sum;
  return d;
}

int32_t TableTarget::sample(int, std::span<const int32_t>) {
  ADD_FAILURE() << "a rule that compares with a proposal asked the target to draw";
  return 0;
}

const Distribution& TableTarget::distribution(int node, std::span<const int32_t> path) {
  const Tokens tokens(path.begin(), path.end());
  if (tree_ == nullptr) {
    EXPECT_EQ(node, static_cast<int>(path.size()) - 1);
  } else {
    EXPECT_EQ(tokens, path_of(*tree_, node));
  }
  EXPECT_GT(probability(tokens), 0.0) << "there is nothing after a token that cannot come";
  // Spoils what was handed out before, which holds until this call only.
  handed_out_ = Distribution{{0}, {-1.0}};
  return handed_out_ = after(tokens);
}

bool TableTarget::ready(int node) {
  if (!is_unready || !is_unready(path_of(*tree_, node))) return true;
  return !said_not_.insert(node).second && becomes_ready;
}

const Distribution& TableTarget::after(const Tokens& path) {
  const auto found = table_.find(path);
  if (found != table_.end()) return found->second;
  return table_[path] = random_distribution(random_, vocab_, zeros_);
}

double TableTarget::probability(const Tokens& tokens) {
  double probability = 1.0;
  Tokens path;
  for (const int32_t token : tokens) {
    if (probability == 0) return 0;
    probability *= after(path).probability(token);
    path.push_back(token);
  }
  return probability;
}

bool EnumeratingDice::accept(int node, int attempt, double probability) {
  EXPECT_TRUE(tried_.emplace(node, attempt).second) << node << ", " << attempt;
  EXPECT_GE(probability, 0.0);
  EXPECT_LE(probability, 1.0);
  const double chances[] = {1.0 - probability, probability};
  return choose(chances) == 1;
}

int32_t EnumeratingDice::draw(int, const Distribution& distribution) {
  return distribution.ids[choose(distribution.probs)];
}

size_t EnumeratingDice::choose(std::span<const double> probabilities) {
  // What cannot happen is not played.
  size_t options = probabilities.size();
  while (options > 1 && probabilities[options - 1] <= 0) --options;
  if (depth_ == choices_.size()) choices_.push_back({0, options});
  Choice& choice = choices_[depth_++];
  EXPECT_EQ(choice.options, options) << "the rule is not a function of its dice";
  while (probabilities[choice.taken] <= 0) ++choice.taken;
  probability_ *= probabilities[choice.taken];
  return choice.taken;
}

void EnumeratingDice::for_each(const std::function<void()>& run) {
  choices_.clear();
  do {
    depth_ = 0;
    probability_ = 1.0;
    tried_.clear();
    run();
    // The last choice that has an option left goes on to it; those behind start over.
    while (!choices_.empty() && choices_.back().taken + 1 >= choices_.back().options) {
      choices_.pop_back();
    }
    if (!choices_.empty()) ++choices_.back().taken;
  } while (!choices_.empty());
}

namespace {

using TinyTable = std::array<TinyLogits, kTinyVocab * kTinyVocab>;

TinyTable make_tiny_table(uint64_t seed) {
  std::mt19937_64 random(seed);
  TinyTable table;
  for (TinyLogits& logits : table) {
    for (float& x : logits) x = 4.0f * static_cast<float>(random() % 1000) / 1000.0f;
  }
  return table;
}

}  // namespace

const TinyLogits& tiny_logits(TinyModel model, int32_t before_last, int32_t last) {
  static const TinyTable tables[] = {make_tiny_table(1), make_tiny_table(2)};
  return tables[static_cast<size_t>(model)][static_cast<size_t>(before_last * kTinyVocab + last)];
}

const TinyLogits& TinyTarget::logits(std::span<const int32_t> path) const {
  return tiny_logits(TinyModel::kTarget, token_at_end(committed_, path, 2),
                     token_at_end(committed_, path, 1));
}

int32_t TinyTarget::sample(int, std::span<const int32_t> path) {
  return sampler_.sample(logits(path), {committed_, path, nullptr});
}

const Distribution& TinyTarget::distribution(int, std::span<const int32_t> path) {
  sampler_.distribution(logits(path), {committed_, path, nullptr}, distribution_);
  return distribution_;
}

void tiny_proposal(std::span<const int32_t> context, double temperature, Distribution& out) {
  const int32_t before_last = token_at_end(context, {}, 2);
  const int32_t last = token_at_end(context, {}, 1);
  const TinyLogits& right = tiny_logits(TinyModel::kTarget, before_last, last);
  const TinyLogits& other = tiny_logits(TinyModel::kOther, before_last, last);
  out.clear();
  double sum = 0;
  for (int32_t id = 0; id < kTinyVocab; ++id) {
    const size_t i = static_cast<size_t>(id);
    out.ids.push_back(id);
    out.probs.push_back(std::exp((0.6 * right[i] + 0.4 * other[i]) / temperature));
    sum += out.probs.back();
  }
  for (double& p : out.probs) p /= sum;
}

}  // namespace aerie

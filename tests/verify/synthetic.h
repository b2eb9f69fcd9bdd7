// Small made-up targets and drafters, and what follows from them exactly.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "core/token_tree.h"
#include "sampling/sampler.h"
#include "verify/dice.h"
#include "verify/verifier.h"

namespace aerie {

using Tokens = std::vector<int32_t>;

// The tokens down to `node`; none for the root, -1.
Tokens path_of(const TokenTree& tree, int32_t node);

// A random distribution over part of 0 .. vocab - 1; each id is left out with chance `zeros`, and
// one always stays.
Distribution random_distribution(std::mt19937_64& random, int vocab, double zeros);

// A target that is a table: any distribution after any path, made up at the first look.
class TableTarget final : public TargetView {
 public:
  TableTarget(uint64_t seed, int vocab, double zeros)
      : random_(seed), vocab_(vocab), zeros_(zeros) {}

  // Not for rules that draw for themselves.
  int32_t sample(int node, std::span<const int32_t> path) override;
  // Fails the test for a path that the target cannot emit, or that is not the node's.
  const Distribution& distribution(int node, std::span<const int32_t> path) override;
  bool ready(int node) override;
  // Whose nodes it will be asked about; nullptr: those of a chain.
  void look_at(const TokenTree* tree) {
    tree_ = tree;
    said_not_.clear();
  }
  // After which paths it is not ready; it may become so once it has said that it is not.
  std::function<bool(const Tokens& path)> is_unready;
  bool becomes_ready = false;

  const Distribution& after(const Tokens& path);
  void set(const Tokens& path, Distribution distribution) {
    table_[path] = std::move(distribution);
  }
  // The probability of emitting `tokens` from the start.
  double probability(const Tokens& tokens);
  int vocab() const { return vocab_; }

 private:
  std::mt19937_64 random_;
  int vocab_;
  double zeros_;
  std::map<Tokens, Distribution> table_;
  const TokenTree* tree_ = nullptr;
  std::set<int> said_not_;  // of which nodes
  Distribution handed_out_;
};

// Plays every outcome of code that runs on dice, one after the other, each with its probability.
// Fails the test for a trial that is made twice.
class EnumeratingDice final : public Dice {
 public:
  bool accept(int node, int attempt, double probability) override;
  int32_t draw(int node, const Distribution& distribution) override;

  // Calls run() for each outcome of positive probability; run() calls this object's accept() and
  // draw(), and reads probability() when it is through.
  void for_each(const std::function<void()>& run);
  double probability() const { return probability_; }

 private:
  size_t choose(std::span<const double> probabilities);

  struct Choice {
    size_t taken;
    size_t options;
  };
  std::vector<Choice> choices_;
  std::set<std::pair<int, int>> tried_;  // (node, attempt)
  size_t depth_ = 0;
  double probability_ = 1.0;
};

// A tiny language model: 6 tokens, logits a fixed function of the last two. The sampling settings
// make distributions of them as they would of a real model's.
inline constexpr int kTinyVocab = 6;
using TinyLogits = std::array<float, kTinyVocab>;
enum class TinyModel : size_t { kTarget, kOther };
const TinyLogits& tiny_logits(TinyModel model, int32_t before_last, int32_t last);

class TinyTarget final : public TargetView {
 public:
  TinyTarget(const SamplingParams& params, std::span<const int32_t> committed)
      : sampler_(params, kTinyVocab), committed_(committed) {}

  int32_t sample(int node, std::span<const int32_t> path) override;
  const Distribution& distribution(int node, std::span<const int32_t> path) override;

 private:
  const TinyLogits& logits(std::span<const int32_t> path) const;

  Sampler sampler_;
  std::span<const int32_t> committed_;
  Distribution distribution_;
};

// The tiny drafter's distribution after `context`: related to the target's, but not equal.
void tiny_proposal(std::span<const int32_t> context, double temperature, Distribution& out);

}  // namespace aerie

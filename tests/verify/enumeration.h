// Rules that compare with a proposal, exactly: every draft, every outcome of the very code that
// serves, summed up with its probability.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "tests/verify/synthetic.h"

namespace aerie {

// Makes a draft with the dice's help; what its nodes point to stays until the next call.
using DrawTree = std::function<TokenTree(Dice& dice)>;

struct Outcome {
  std::map<Tokens, double> emitted;  // sequences of one length, by their probability
  double accepted = 0;               // expected number of accepted tokens
};

// Adds `probability` to `out`, spread over the sequences of `length` tokens that begin with
// `tokens` as the target goes on from there. Longer ones are cut.
void extend(TableTarget& target, Tokens tokens, size_t length, double probability,
            std::map<Tokens, double>& out);

// The target's own.
std::map<Tokens, double> sequences(TableTarget& target, size_t length);

// The largest difference of a probability from the target's own: 0 for what is lossless.
double bias(TableTarget& target, const Outcome& outcome);

// What one round of `judge` emits, and the target after it.
using Judge =
    std::function<void(const TokenTree& tree, TargetView& target, Dice& dice, Verdict& verdict)>;
Outcome enumerate(TableTarget& target, const DrawTree& draw, const Judge& judge, size_t length);

template <typename Rule>
Outcome enumerate(TableTarget& target, const DrawTree& draw, size_t length) {
  Rule rule;
  return enumerate(
      target, draw,
      [&](const TokenTree& tree, TargetView& view, Dice& dice, Verdict& verdict) {
        rule.judge(tree, view, dice, verdict);
      },
      length);
}

// The ways in which siblings come about.
enum class Siblings {
  kPointMass,
  kIndependent,         // of one distribution
  kWithoutReplacement,  // of one distribution
  kSeveral,             // each of a distribution of its own
  kMixed,               // a point mass, the others without replacement
};
inline constexpr Siblings kSiblings[] = {Siblings::kPointMass, Siblings::kIndependent,
                                         Siblings::kWithoutReplacement, Siblings::kSeveral,
                                         Siblings::kMixed};
const char* siblings_name(Siblings siblings);

// The parent of each node to be drawn; -1 is the root.
using Shape = std::vector<int>;

// Draws trees of a shape; after each path it has its own way. Where siblings without replacement
// have used up their distribution there are no more of them.
class TreeSampler {
 public:
  // With `merges`, draws that fall on one token are one node with several proposals; without, there
  // are siblings with the same token.
  TreeSampler(uint64_t seed, int vocab, double zeros, Siblings siblings, Shape shape, bool merges)
      : random_(seed),
        vocab_(vocab),
        zeros_(zeros),
        siblings_(siblings),
        shape_(std::move(shape)),
        merges_(merges) {}

  TokenTree operator()(Dice& dice);

  // Whether a node of the shape is to be drawn, `tree` being what was drawn before it; without it,
  // all are.
  std::function<bool(const TokenTree& tree, size_t index)> wants;

  // The distribution of the `sibling`-th child after `path`, made up at the first look.
  Distribution& after(const Tokens& path, int sibling);

 private:
  struct Draw {
    int32_t token = -1;  // -1: nothing was left
    TokenTree::Proposal proposal;
  };
  Draw draw(const Tokens& path, int sibling, const TokenTree& tree, int32_t parent, Dice& dice);

  std::mt19937_64 random_;
  int vocab_;
  double zeros_;
  Siblings siblings_;
  Shape shape_;
  bool merges_;
  std::map<std::pair<Tokens, int>, Distribution> table_;
};

}  // namespace aerie

#include "tests/testing/test_drafters.h"

#include <algorithm>
#include <random>

namespace aerie::test {
namespace {

class RandomChain final : public TestDrafter {
 public:
  RandomChain(uint64_t seed, int length, int vocab)
      : random_(seed), length_(length), vocab_(static_cast<uint64_t>(vocab)) {}

  Status propose(std::span<DraftRequest> requests) override {
    for (DraftRequest& request : requests) {
      for (int i = 0; i < std::min(length_, request.max_nodes); ++i) {
        request.tree->add(static_cast<int32_t>(random_() % vocab_), i - 1);
      }
    }
    return {};
  }

 private:
  std::mt19937_64 random_;
  int length_;
  uint64_t vocab_;
};

class ProphetTree final : public TestDrafter {
 public:
  ProphetTree(uint64_t seed, int nodes, int vocab, Prophecies prophecies)
      : random_(seed), nodes_(nodes), vocab_(vocab), prophecies_(std::move(prophecies)) {}

  Status propose(std::span<DraftRequest> requests) override {
    for (DraftRequest& request : requests) grow(request);
    return {};
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  void grow(DraftRequest& request) {
    const std::vector<int32_t>& truth = prophecies_[request.id];
    TokenTree& tree = *request.tree;
    int32_t true_leaf = -1;
    for (int i = 0; i < std::min(nodes_, request.max_nodes); ++i) {
      const bool from_truth = below(2) == 0;
      const int32_t parent = from_truth ? true_leaf : below(tree.size() + 1) - 1;
      const int depth = parent < 0 ? 1 : tree.nodes[static_cast<size_t>(parent)].depth + 1;
      const size_t position = request.tokens.size() + static_cast<size_t>(depth) - 1;
      if (parent == true_leaf && position < truth.size() && below(4) != 0) {
        true_leaf = tree.add(truth[position], parent);
      } else {
        tree.add(below(vocab_), parent);
      }
    }
  }

  std::mt19937_64 random_;
  int nodes_;
  int vocab_;
  Prophecies prophecies_;
};

}  // namespace

std::unique_ptr<Drafter> make_random_chain_drafter(uint64_t seed, int length, int vocab) {
  return std::make_unique<RandomChain>(seed, length, vocab);
}

std::unique_ptr<Drafter> make_prophet_tree_drafter(uint64_t seed, int nodes, int vocab,
                                                   Prophecies prophecies) {
  return std::make_unique<ProphetTree>(seed, nodes, vocab, std::move(prophecies));
}

}  // namespace aerie::test

// Drafters that no user would want.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "draft/drafter.h"
#include "model/model.h"

namespace aerie::test {

// Keeps to the interface and does nothing.
class TestDrafter : public Drafter {
 public:
  std::string_view method() const override { return "test"; }
  const DrafterNeeds& needs() const override { return needs_; }
  Status open(const DraftSequence&) override { return {}; }
  void close(SequenceId) override {}
  Status propose(std::span<DraftRequest>) override { return {}; }
  Status observe(std::span<const DraftCommit>) override { return {}; }

 protected:
  DrafterNeeds needs_;
};

// A chain of `length` random tokens.
std::unique_ptr<Drafter> make_random_chain_drafter(uint64_t seed, int length, int vocab);

// What each sequence will say: known in advance, all tokens from position 0.
using Prophecies = std::map<SequenceId, std::vector<int32_t>>;

// Trees of `nodes` nodes of any shape. Most nodes that can carry on with the truth do, at any place
// among their siblings, so that what is accepted lies scattered over the tree; the others are
// random.
std::unique_ptr<Drafter> make_prophet_tree_drafter(uint64_t seed, int nodes, int vocab,
                                                   Prophecies prophecies);

// A drafter that draws trees from a model, which sees the last `window` tokens alone.
struct SampledTreeOptions {
  std::vector<int> widths;  // children of the root, of each of its children, and so on
  int vocab = 0;
  int window = 8;
  bool without_replacement = false;
  // Draws that fall on one token are one node with several proposals; else each is a node.
  bool merges = false;
  // Whether it says that it draws without replacement: false is a mistake.
  bool says_so = true;
};
std::unique_ptr<Drafter> make_sampled_tree_drafter(std::unique_ptr<Model> model,
                                                   const SampledTreeOptions& options);

}  // namespace aerie::test

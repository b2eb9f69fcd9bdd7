// What the rows of a network's passes offer as children of a draft's nodes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/network/draft_network.h"
#include "draft/network/network_draft.h"
#include "draft/network/network_drafter.h"
#include "draft/network/noise_trust.h"
#include "draft/tree/level_tree.h"
#include "sampling/sampler.h"

namespace aerie {

// The row under way is ranked or drawn from for one node after another. What is offered is added to
// the draft's offers and left in children(). Allocates while it is made alone. Not thread-safe.
class RowOffers {
 public:
  // Tokens that are offered of a row beyond those that can become children where the target's noise
  // counts: they show how far ahead the children are.
  static constexpr int kRunnersUp = 3;

  // Both must outlive it.
  RowOffers(DraftNetwork& network, const NetworkDrafterOptions& options);

  int vocab() const { return vocab_; }  // of what is offered, the target's or less
  int ranks() const { return ranks_; }  // the most children of a node

  // The outputs of the last pass, which must stay until the next. `plain`: some draft goes by
  // logits alone, so that it is worth ranking all rows at once.
  void begin_pass(const DraftOutputs& outputs, bool plain);
  // The row under way from here on, and of a network that follows() what its logits are behind the
  // root and a path.
  void set_row(int row) { row_ = row; }
  void follow(int32_t root, std::span<const int32_t> path);

  // The best `wanted`, each with its chance of being the target's choice.
  void rank(NetworkDraft& draft, const SamplingContext& context, int wanted);
  // What the target drew behind a node with these offers, which were ranked with its noise.
  void learn(NetworkDraft& draft, std::span<const DraftOffer> offers, int32_t drawn);
  // Of the row, one more of the draft's distributions; its index.
  int32_t distribution(NetworkDraft& draft, const SamplingContext& context);
  // So many children of different tokens from one of them. How many is the shape's, whatever comes
  // of the draws.
  void draw(NetworkDraft& draft, int32_t distribution, uint64_t root_position, int wanted);
  // Where nothing can follow, the sampler's answer may be a token that the network lacks.
  void drop_unreadable();
  std::span<const LevelTree::Child> children() const { return children_; }

 private:
  void take_top();
  void rank_with_noise(NetworkDraft& draft, const SamplingContext& context, int wanted);
  std::span<const float> all_logits();
  std::span<const float> target_logits();
  int64_t known() const;
  void take_ranked(NetworkDraft& draft, int wanted);
  bool take_best(NetworkDraft& draft, int wanted);
  double promised(size_t rank, double probability);

  DraftNetwork& network_;
  const NetworkDrafterOptions& options_;
  int vocab_, ranks_;
  const DraftOutputs* outputs_ = nullptr;  // of the pass under way
  int row_ = 0;
  // The best of each row of the pass, if it is ranked by logits alone.
  std::vector<int32_t> top_ids_;
  std::vector<float> top_logits_, log_sums_;
  bool ranked_ = false;
  std::vector<float> followed_;  // the row's logits, where they hang on the tokens before it
  float confidence_ = -1.0f;     // DraftNetwork::follow() of it
  double best_share_ = 0.0;      // of its likeliest token
  std::vector<int32_t> before_;
  std::vector<float> scattered_, fetched_;
  std::vector<ScoredToken> ranking_;
  std::vector<NoiseTrust::Seen> seen_;
  std::vector<LevelTree::Child> children_;
  std::vector<int32_t> taken_;
};

}  // namespace aerie

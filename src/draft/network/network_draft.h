// What a network drafter keeps of each sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "draft/network/noise_trust.h"
#include "draft/network/score_calibration.h"
#include "draft/tree/level_tree.h"
#include "sampling/sampler.h"

namespace aerie {

// The settings as they apply to a vocabulary that may be narrower than the target's logits.
inline SamplingParams fitted(SamplingParams params, int vocab) {
  params.logprobs = -1;
  std::erase_if(params.logit_bias, [&](const auto& bias) { return bias.first >= vocab; });
  return params;
}

// Whether the best tokens are those with the largest logits.
inline bool ranks_by_logits(const SamplingParams& params) {
  return params.temperature == 0.0 && params.repetition_penalty == 1.0 &&
         params.frequency_penalty == 0.0 && params.presence_penalty == 0.0 &&
         params.logit_bias.empty();
}

// What is kept of a node of the tree, or of the root, beside what the tree knows.
struct DraftExpansion {
  int32_t first_offer = 0;  // of NetworkDraft::offers
  int32_t offers = 0;
  int32_t distribution = -1;  // of NetworkDraft::distributions: what its children were drawn from
};

// A token as it was ranked after a node, whether or not it became a node itself.
struct DraftOffer {
  int32_t token;
  double promised;
  NoiseTrust::Seen seen = {};  // if NetworkDraft::goes_by_noise()
};

// What follows any node of one depth, for a network that drafts all depths at once.
struct DraftDepth {
  DraftExpansion expansion;
  std::vector<LevelTree::Child> children;
};

struct NetworkDraft {
  NetworkDraft(const DraftSequence& s, int vocab)
      : sequence(s),
        sampler(fitted(s.sampling, vocab), vocab),
        plain(ranks_by_logits(s.sampling) && s.constraint == nullptr) {}
  bool draws() const {
    return sequence.noise == DraftNoise::kOwn && sequence.sampling.temperature > 0;
  }
  // Whether its tokens are ranked by logits and the target's own noise.
  bool goes_by_noise() const {
    return sequence.noise == DraftNoise::kTarget && sequence.sampling.temperature > 0;
  }
  // Behind the tokens of a path from the root; null: any text, as behind a token that is forbidden,
  // which is drafted where the network has no other and behind which nothing stands, and where the
  // constraint is not ready.
  std::unique_ptr<TokenConstraint> constraint_after(std::span<const int32_t> path) const {
    if (sequence.constraint == nullptr) return nullptr;
    auto state = sequence.constraint->fork();
    for (const int32_t token : path) {
      if (!state->allows(token)) return nullptr;
      state->advance(token);
    }
    if (!state->ready()) return nullptr;
    return state;
  }
  DraftExpansion& expansion(int32_t node) { return expansions[static_cast<size_t>(node + 1)]; }

  DraftSequence sequence;
  Sampler sampler;
  bool plain;  // ranks_by_logits(), and any text will do
  ScoreCalibration calibration;
  NoiseTrust trust;

  // The draft of this round.
  LevelTree tree;
  size_t length = 0;                       // tokens that it follows; 0: there is none
  std::vector<DraftExpansion> expansions;  // [node + 1]
  std::vector<DraftDepth> depths;          // [depth - 1]
  std::vector<DraftOffer> offers;
  std::vector<Distribution> distributions;
  size_t drawn = 0;  // distributions in use
};

}  // namespace aerie

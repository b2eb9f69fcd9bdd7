// What the whole decoder emits over many seeds, against the exact joint distribution of the first
// tokens: the judge of every test that says that a rule and a drafter keep the target's
// distribution, and of those that plant a mistake.
#pragma once

#include <cstdint>
#include <memory>

#include "decode/decoder.h"
#include "tests/testing/tiny_model.h"
#include "tests/verify/chi_square.h"

namespace aerie {

// Targets and draft models have so many tokens, a sequence so many positions, and a pass so many
// rows.
inline constexpr int kJointVocab = 6;
inline constexpr int kJointPositions = 32;
inline constexpr int kJointRows = 32;
// Samples that are drawn at once: a batch changes no sequence's tokens, and its passes take little
// longer than those of one.
inline constexpr int kJointSequences = 4;
test::TinySpec joint_spec(double head_scale, uint64_t seed);
ModelOptions joint_model_options();

struct JointSetting {
  const test::TinyFile* target = nullptr;
  VerifyRule rule = VerifyRule::kExact;
  SamplingParams params;
  std::shared_ptr<const TokenConstraint> constraint;  // null: any text
  int tokens = 4;   // the prompt's and those after it: the joint that is compared
  int further = 1;  // how far drafts may reach beyond what is looked at
  double total_variation = 0.02;
};

struct JointOutcome {
  stats::ChiSquareResult result;
  int64_t samples = 0;
  SequenceStats stats;  // of all samples together
};

// Samples as often as it takes to find a bias of `total_variation`.
JointOutcome compare_with_joint(const JointSetting& setting, Drafter* drafter);

}  // namespace aerie

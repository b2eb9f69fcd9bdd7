// What the whole decoder emits with a draft model, over many seeds, against the exact joint
// distribution of the first tokens, enumerated from the target's own passes.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "draft/auto/combined.h"
#include "draft/lookup/ngram.h"
#include "draft/network/draft_model.h"
#include "tests/decode/joint.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/test_drafters.h"
#include "tests/testing/tiny_heads.h"

namespace aerie::distribution_test {

using test::TinyFile;

const TinyFile& target_file() {
  static const TinyFile file(joint_spec(1.5, 1));
  return file;
}
// Says nearly the same everywhere, or is sure and mostly wrong.
const TinyFile& flat_file() {
  static const TinyFile file(joint_spec(0.4, 2));
  return file;
}
const TinyFile& peaked_file() {
  static const TinyFile file(joint_spec(3.0, 3));
  return file;
}

// Three tokens of six, so that the joint has 81 likely cells and many impossible ones.
SamplingParams top_k() {
  SamplingParams params;
  params.temperature = 1.1;
  params.top_k = 3;
  return params;
}
// Each token changes the next one's distribution by more than its place in the cache.
SamplingParams penalties() {
  SamplingParams params = top_k();
  params.repetition_penalty = 1.3;
  params.presence_penalty = 0.4;
  return params;
}

JointOutcome run(VerifyRule rule, const SamplingParams& params, Drafter* drafter) {
  JointSetting setting;
  setting.target = &target_file();
  setting.rule = rule;
  setting.params = params;
  if (test::kSanitized) setting.total_variation = 0.06;
  return compare_with_joint(setting, drafter);
}

std::unique_ptr<Drafter> draft_model(const TinyFile& file) {
  DraftModelOptions options;
  options.num_tokens = 3;
  options.vocab = kJointVocab;
  options.max_positions = kJointPositions;
  options.max_sequences = kJointSequences;
  options.max_rows = kJointRows;
  return std::move(make_draft_model_drafter(file.load(joint_model_options()), options)).value();
}

// Its tables know the last token alone, so that they are right here and there. Pruned, it lacks
// one token of the six. With several children, the shape is that of a sampled tree.
std::unique_ptr<Drafter> trained_head(test::HeadFamily family, int top_k) {
  static std::map<test::HeadFamily, test::TinyHead> heads;
  test::TinyHead& head =
      heads.try_emplace(family, target_file().gguf(), family, true).first->second;
  static const std::unique_ptr<Model> model = target_file().load(joint_model_options());
  test::TinyHeadRun run;
  run.drafter.num_tokens = top_k > 1 ? 6 : 3;
  run.drafter.num_steps = 3;
  run.drafter.top_k = top_k;
  run.drafter.max_sequences = kJointSequences;
  run.max_positions = kJointPositions;
  run.pool = joint_model_options().pool;
  return head.drafter(*model, run);
}

std::unique_ptr<Drafter> sampled_trees(const TinyFile& file, test::SampledTreeOptions options) {
  options.vocab = kJointVocab;
  return test::make_sampled_tree_drafter(file.load(joint_model_options()), options);
}

std::unique_ptr<Drafter> merged(std::unique_ptr<Drafter> a, std::unique_ptr<Drafter> b) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::move(a));
  drafters.push_back(std::move(b));
  return std::move(combine_drafters(std::move(drafters), Combination::kMerge)).value();
}

// And that some drafts, but not all, were accepted: otherwise little was tested.
void expect_fit(VerifyRule rule, const SamplingParams& params, Drafter* drafter) {
  const JointOutcome outcome = run(rule, params, drafter);
  EXPECT_FALSE(outcome.result.rejected)
      << verify_rule_name(rule) << ": statistic " << outcome.result.statistic << ", p "
      << outcome.result.p_value << ", " << outcome.samples << " samples";
  if (drafter == nullptr) return;
  EXPECT_GT(outcome.stats.accepted, outcome.samples / 4);
  EXPECT_LT(outcome.stats.acceptance_rate(), 0.9);
}

TEST(Distribution, Plain) {
  expect_fit(VerifyRule::kExact, penalties(), nullptr);
  expect_fit(VerifyRule::kBlock, top_k(), nullptr);
}

TEST(Distribution, ExactWithAPeakedDraft) {
  expect_fit(VerifyRule::kExact, top_k(), draft_model(peaked_file()).get());
}

TEST(Distribution, RejectionWithAFlatDraft) {
  expect_fit(VerifyRule::kRejection, penalties(), draft_model(flat_file()).get());
}

TEST(Distribution, RejectionWithAPeakedDraft) {
  expect_fit(VerifyRule::kRejection, top_k(), draft_model(peaked_file()).get());
}

TEST(Distribution, BlockWithAFlatDraft) {
  expect_fit(VerifyRule::kBlock, top_k(), draft_model(flat_file()).get());
}

TEST(Distribution, BlockWithAPeakedDraft) {
  expect_fit(VerifyRule::kBlock, penalties(), draft_model(peaked_file()).get());
}

TEST(Distribution, RejectionWithNgrams) {
  NgramOptions options;
  options.num_tokens = 3;
  expect_fit(VerifyRule::kRejection, top_k(), std::move(make_ngram_drafter(options)).value().get());
}

class Trees : public testing::TestWithParam<VerifyRule> {};

TEST_P(Trees, IndependentDraws) {
  expect_fit(GetParam(), top_k(), sampled_trees(flat_file(), {.widths = {2, 2}}).get());
}

TEST_P(Trees, IndependentDrawsWithSeveralProposalsOfANode) {
  expect_fit(GetParam(), penalties(),
             sampled_trees(flat_file(), {.widths = {3, 2}, .merges = true}).get());
}

TEST_P(Trees, WithoutReplacement) {
  expect_fit(GetParam(), penalties(),
             sampled_trees(peaked_file(), {.widths = {2, 2}, .without_replacement = true}).get());
}

TEST_P(Trees, OfTwoDraftModels) {
  expect_fit(GetParam(), top_k(),
             merged(draft_model(flat_file()), draft_model(peaked_file())).get());
}

TEST_P(Trees, OfATreeAndAPointMass) {
  NgramOptions ngram;
  ngram.num_tokens = 3;
  expect_fit(GetParam(), top_k(),
             merged(std::move(make_ngram_drafter(ngram)).value(),
                    sampled_trees(flat_file(), {.widths = {2, 1}, .without_replacement = true}))
                 .get());
}

TEST_P(Trees, DrawnWithoutReplacementAndNotSaidIsNoticed) {
  const auto drafter =
      sampled_trees(flat_file(), {.widths = {3}, .without_replacement = true, .says_so = false});
  EXPECT_TRUE(run(GetParam(), top_k(), drafter.get()).result.rejected);
}

// Undoes what keeps the draws of combined drafters apart.
class OfOneNoise final : public test::TestDrafter {
 public:
  explicit OfOneNoise(std::unique_ptr<Drafter> inner) : inner_(std::move(inner)) {}
  Status open(const DraftSequence& sequence) override {
    DraftSequence same = sequence;
    same.sampling.choice = 0;
    return inner_->open(same);
  }
  void close(SequenceId id) override { inner_->close(id); }
  Status propose(std::span<DraftRequest> requests) override { return inner_->propose(requests); }
  Status observe(std::span<const DraftCommit> commits) override { return inner_->observe(commits); }

 private:
  std::unique_ptr<Drafter> inner_;
};

TEST_P(Trees, DraftersThatDrawWithOneNoiseAreNoticed) {
  const auto drafter = merged(std::make_unique<OfOneNoise>(draft_model(flat_file())),
                              std::make_unique<OfOneNoise>(draft_model(flat_file())));
  EXPECT_TRUE(run(GetParam(), top_k(), drafter.get()).result.rejected);
}

INSTANTIATE_TEST_SUITE_P(Rules, Trees,
                         testing::Values(VerifyRule::kRejection, VerifyRule::kTraversal),
                         [](const auto& rule) {
                           return std::string(verify_rule_name(rule.param));
                         });

TEST(Distribution, BlockWithAnEagle3Head) {
  expect_fit(VerifyRule::kBlock, penalties(),
             trained_head(test::HeadFamily::kEagle3Pruned, 1).get());
}

TEST(Distribution, RejectionWithAnEagle3Head) {
  expect_fit(VerifyRule::kRejection, top_k(),
             trained_head(test::HeadFamily::kEagle3Pruned, 1).get());
}

// Siblings drawn without replacement, from five tokens of six; heads that draft all depths from
// distributions that all nodes of one depth share.
TEST_P(Trees, OfAnEagle3Head) {
  expect_fit(GetParam(), top_k(), trained_head(test::HeadFamily::kEagle3Pruned, 3).get());
}

TEST_P(Trees, OfAPEagleHead) {
  expect_fit(GetParam(), penalties(), trained_head(test::HeadFamily::kPEagle, 2).get());
}

TEST_P(Trees, OfMedusaHeads) {
  expect_fit(GetParam(), top_k(), trained_head(test::HeadFamily::kMedusa, 2).get());
}

TEST(Distribution, TraversalWithAPeakedDraft) {
  expect_fit(VerifyRule::kTraversal, penalties(), draft_model(peaked_file()).get());
}

// A classic mistake: the likeliest token, handed in as if it had been drawn. The test notices.
class NotReallyDrawn final : public test::TestDrafter {
 public:
  explicit NotReallyDrawn(std::unique_ptr<Drafter> inner) : inner_(std::move(inner)) {}
  Status open(const DraftSequence& sequence) override { return inner_->open(sequence); }
  void close(SequenceId id) override { inner_->close(id); }
  Status propose(std::span<DraftRequest> requests) override {
    AERIE_RETURN_IF_ERROR(inner_->propose(requests));
    for (DraftRequest& request : requests) {
      // Only the first, behind which the other tokens' distributions would be others.
      TokenTree& tree = *request.tree;
      if (tree.empty()) continue;
      tree.nodes.resize(1);
      const Distribution& q = *tree.nodes[0].proposal;
      const auto best = std::max_element(q.probs.begin(), q.probs.end()) - q.probs.begin();
      tree.nodes[0].token = q.ids[static_cast<size_t>(best)];
    }
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override { return inner_->observe(commits); }

 private:
  std::unique_ptr<Drafter> inner_;
};

TEST(Distribution, ATokenThatWasNotDrawnFromItsDistributionIsNoticed) {
  NotReallyDrawn drafter(draft_model(flat_file()));
  EXPECT_TRUE(run(VerifyRule::kRejection, top_k(), &drafter).result.rejected);
}

}  // namespace aerie::distribution_test

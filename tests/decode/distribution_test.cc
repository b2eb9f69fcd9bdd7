// What the whole decoder emits with a draft model, over many seeds, against the exact joint
// distribution of the first tokens, enumerated from the target's own passes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decode/decoder.h"
#include "draft/auto/combined.h"
#include "draft/lookup/ngram.h"
#include "draft/network/draft_model.h"
#include "tests/testing/decoding.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/test_drafters.h"
#include "tests/testing/tiny_heads.h"
#include "tests/testing/tiny_model.h"
#include "tests/verify/chi_square.h"

namespace aerie {
namespace {

using test::TinyFile;
using test::TinySpec;

constexpr int kVocab = 6;
constexpr int kTokens = 4;  // the prompt's and three more: the joint that is compared
constexpr int kPositions = 32;

TinySpec spec_of(double head_scale, uint64_t seed) {
  TinySpec spec;
  spec.layers = 1;
  spec.hidden = 32;
  spec.heads = spec.kv_heads = 1;
  spec.ffn = 32;
  spec.vocab = kVocab;
  spec.seed = seed;
  spec.head_scale = head_scale;
  return spec;
}

const TinyFile& target_file() {
  static const TinyFile file(spec_of(1.5, 1));
  return file;
}
// Says nearly the same everywhere, or is sure and mostly wrong.
const TinyFile& flat_file() {
  static const TinyFile file(spec_of(0.4, 2));
  return file;
}
const TinyFile& peaked_file() {
  static const TinyFile file(spec_of(3.0, 3));
  return file;
}

ModelOptions small_options() {
  ModelOptions options = test::model_options();
  options.max_rows = 16;
  options.max_logits = 8;
  options.max_positions = kPositions;
  return options;
}

DecoderOptions decoder_options(VerifyRule rule) {
  DecoderOptions options;
  options.rule = rule;
  options.max_positions = kPositions;
  options.max_nodes = 6;
  options.max_rows = 16;
  options.max_logits = 8;
  return options;
}

const std::vector<int32_t>& prompt() {
  static const std::vector<int32_t> tokens = {1, 4, 1};
  return tokens;
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

// The probability of each continuation of kTokens tokens, the first token as the highest digit.
class Enumeration {
 public:
  explicit Enumeration(const SamplingParams& params)
      : model_(target_file().load(small_options())),
        cache_(test::cache_for(*model_, decoder_options(VerifyRule::kExact), 1)),
        sampler_(params, kVocab) {
    cells.resize(static_cast<size_t>(std::pow(kVocab, kTokens)));
    tokens_ = prompt();
    descend(0, 0, 1.0);
  }
  std::vector<double> cells;

 private:
  void descend(int depth, size_t cell, double probability) {
    if (depth == kTokens) {
      cells[cell] = probability;
      return;
    }
    Distribution next;
    const std::vector<float> logits = forward();
    sampler_.distribution(logits, {tokens_, {}, nullptr}, next);
    for (size_t i = 0; i < next.size(); ++i) {
      tokens_.push_back(next.ids[i]);
      descend(depth + 1, cell * kVocab + static_cast<size_t>(next.ids[i]),
              probability * next.probs[i]);
      tokens_.pop_back();
    }
  }

  std::vector<float> forward() {
    const KvCache::Id id = *cache_.open();
    const int length = static_cast<int>(tokens_.size());
    EXPECT_TRUE(cache_.reserve(id, length).ok());
    ForwardBatch batch;
    batch.sequences.push_back({cache_.pages(id), 0});
    for (int i = 0; i < length; ++i) {
      BatchRow row;
      row.token = tokens_[static_cast<size_t>(i)];
      row.position = i;
      row.slot = cache_.slot(id, i);
      row.parent = i - 1;
      row.wants_logits = i == length - 1;
      batch.rows.push_back(row);
    }
    const auto logits = model_->forward(batch, cache_).logits_of(0);
    cache_.close(id);
    return {logits.begin(), logits.end()};
  }

  std::unique_ptr<Model> model_;
  KvCache cache_;
  Sampler sampler_;
  std::vector<int32_t> tokens_;
};

struct Outcome {
  stats::ChiSquareResult result;
  int64_t samples = 0;
  SequenceStats stats;  // of all samples together
};

Outcome run(VerifyRule rule, const SamplingParams& params, Drafter* drafter) {
  static const std::unique_ptr<Model> model = target_file().load(small_options());
  stats::ChiSquareSettings settings;
  if (test::kSanitized) settings.total_variation = 0.06;
  stats::ChiSquareTest chi_square(Enumeration(params).cells, settings);
  KvCache cache = test::cache_for(*model, decoder_options(rule), 1);
  Decoder decoder(*model, cache, drafter, decoder_options(rule));
  SequenceOptions options;
  options.sampling = params;
  options.max_tokens = kTokens + 1;  // so that drafts reach beyond what is looked at
  Outcome outcome;
  outcome.samples = chi_square.samples();
  for (int64_t i = 0; i < outcome.samples; ++i) {
    options.sampling.seed = static_cast<uint64_t>(i);
    auto sequence = std::move(decoder.open(prompt(), options)).value();
    Sequence* batch[] = {sequence.get()};
    EXPECT_TRUE(decoder.prefill(*sequence).ok());
    while (sequence->generated() < kTokens) EXPECT_TRUE(decoder.round(batch).ok());
    size_t cell = 0;
    for (size_t t = 0; t < kTokens; ++t) {
      cell = cell * kVocab + static_cast<size_t>(sequence->tokens[prompt().size() + t]);
    }
    chi_square.add(cell);
    outcome.stats.drafted += sequence->stats.drafted;
    outcome.stats.accepted += sequence->stats.accepted;
    decoder.close(*sequence);
  }
  outcome.result = chi_square.result();
  return outcome;
}

std::unique_ptr<Drafter> draft_model(const TinyFile& file) {
  DraftModelOptions options;
  options.num_tokens = 3;
  options.vocab = kVocab;
  options.max_positions = kPositions;
  options.max_rows = 16;
  return std::move(make_draft_model_drafter(file.load(small_options()), options)).value();
}

// Its tables know the last token alone, so that they are right here and there. Pruned, it lacks
// one token of the six. With several children, the shape is that of a sampled tree.
std::unique_ptr<Drafter> trained_head(test::HeadFamily family, int top_k) {
  static std::map<test::HeadFamily, test::TinyHead> heads;
  test::TinyHead& head =
      heads.try_emplace(family, target_file().gguf(), family, true).first->second;
  static const std::unique_ptr<Model> model = target_file().load(small_options());
  test::TinyHeadRun run;
  run.drafter.num_tokens = top_k > 1 ? 6 : 3;
  run.drafter.num_steps = 3;
  run.drafter.top_k = top_k;
  run.max_positions = kPositions;
  run.pool = small_options().pool;
  return head.drafter(*model, run);
}

std::unique_ptr<Drafter> sampled_trees(const TinyFile& file, test::SampledTreeOptions options) {
  options.vocab = kVocab;
  return test::make_sampled_tree_drafter(file.load(small_options()), options);
}

std::unique_ptr<Drafter> merged(std::unique_ptr<Drafter> a, std::unique_ptr<Drafter> b) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::move(a));
  drafters.push_back(std::move(b));
  return std::move(combine_drafters(std::move(drafters), Combination::kMerge)).value();
}

// And that some drafts, but not all, were accepted: otherwise little was tested.
void expect_fit(VerifyRule rule, const SamplingParams& params, Drafter* drafter) {
  const Outcome outcome = run(rule, params, drafter);
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

}  // namespace
}  // namespace aerie

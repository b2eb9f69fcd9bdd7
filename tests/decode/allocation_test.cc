// A round allocates nothing once it is warm, whatever drafts, whatever judges.

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <vector>

#include "decode/decoder.h"
#include "draft/auto/controller.h"
#include "draft/auto/draft_gate.h"
#include "draft/lookup/lookahead.h"
#include "draft/lookup/ngram.h"
#include "draft/lookup/recycling.h"
#include "draft/lookup/rest.h"
#include "draft/lookup/suffix.h"
#include "draft/network/draft_model.h"
#include "draft/network/early_exit.h"
#include "draft/network/layer_skip.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/decoding.h"
#include "tests/testing/nightly.h"
#include "tests/testing/test_drafters.h"
#include "tests/testing/tiny_heads.h"
#include "tests/testing/tiny_model.h"

namespace aerie::allocation_test {

using test::TinyFile;
using test::TinySpec;

constexpr int kWarmUp = 10;
constexpr int kRounds = 50;
constexpr int kPositions = 1024;
constexpr int kMaxNodes = 12;
constexpr int kPromptVocab = 48;  // that all targets have

enum class Kind {
  kPlain,
  kNgram,
  kNgramTree,
  kSuffixTree,
  kRecycling,
  kRest,
  kLookahead,
  kEarlyExit,
  kLayerSkip,
  kDraftModel,
  kModelTree,
  kStaticTree,
  kTree,
  kAuto,
  kGated,
  kHead,  // of a trained head
  kHeadTree
};
constexpr Kind kKinds[] = {Kind::kPlain,     Kind::kNgram,      Kind::kNgramTree, Kind::kSuffixTree,
                           Kind::kRecycling, Kind::kRest,       Kind::kLookahead, Kind::kEarlyExit,
                           Kind::kLayerSkip, Kind::kDraftModel, Kind::kModelTree, Kind::kStaticTree,
                           Kind::kTree,      Kind::kAuto,       Kind::kGated};

struct Case {
  Kind kind;
  VerifyRule rule;
  bool greedy;
  int threads;
  test::TinyHead* head = nullptr;  // of easy_file()
};

const TinyFile& target_file() {
  static const TinyFile file(TinySpec{});
  return file;
}

// Random trees that come without allocations of the drafter's own.
class TreeDrafter final : public test::TestDrafter {
 public:
  Status propose(std::span<DraftRequest> requests) override {
    for (DraftRequest& request : requests) {
      for (int i = 0; i < request.max_nodes; ++i) {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        request.tree->add(static_cast<int32_t>((state_ >> 33) % 96),
                          static_cast<int32_t>((state_ >> 45) % static_cast<uint64_t>(i + 1)) - 1);
      }
    }
    return {};
  }

 private:
  uint64_t state_ = 1;
};

std::unique_ptr<Drafter> head_drafter(const Case& c, const Model& target) {
  test::TinyHeadRun run;
  run.drafter.num_tokens = c.kind == Kind::kHead ? 5 : kMaxNodes;
  if (c.kind == Kind::kHeadTree) run.drafter.num_steps = run.drafter.top_k = 4;
  run.drafter.max_sequences = 2;
  run.max_positions = kPositions;
  run.pool = &test::pool_of(c.threads);
  return c.head->drafter(target, run);
}

std::unique_ptr<Drafter> drafter_for(Kind kind, Model& target) {
  TinySpec draft;
  draft.layers = 1;
  draft.seed = 5;
  static const TinyFile draft_file(draft);
  switch (kind) {
    case Kind::kPlain:
      return nullptr;
    case Kind::kNgram:
      return std::move(make_ngram_drafter({})).value();
    case Kind::kNgramTree:
      return std::move(make_ngram_drafter({.num_matches = 3})).value();
    case Kind::kSuffixTree:
      return std::move(make_suffix_drafter({.offset = 2.0, .tree = true})).value();
    case Kind::kRecycling:
      return std::move(make_recycling_drafter({.vocab = draft.vocab})).value();
    case Kind::kRest: {
      // Each token is followed by several, so that there is a draft from the first round on.
      std::vector<int32_t> corpus;
      for (int i = 0; i < 4000; ++i) corpus.push_back((i * i + i / 7) % draft.vocab);
      for (int i = 0; i < 4000; ++i) corpus.push_back(i * (i / draft.vocab) % draft.vocab);
      for (int i = 0; i < draft.vocab; ++i) corpus.insert(corpus.end(), {i, i / 2, i, i / 3});
      return std::move(make_rest_drafter({.vocab = draft.vocab, .min_span = 1}, corpus)).value();
    }
    case Kind::kLookahead:
      return std::move(make_lookahead_drafter({.window = 2, .ngram = 3, .guesses = 2})).value();
    case Kind::kEarlyExit:
      return std::move(make_early_exit_drafter({})).value();
    case Kind::kTree:
      return std::make_unique<TreeDrafter>();
    case Kind::kAuto: {
      static const PassCost cost({{1, 1.0, 0.0}, {64, 1.5, 0.0}});
      std::vector<std::unique_ptr<Drafter>> drafters;
      for (const Kind each : {Kind::kNgramTree, Kind::kSuffixTree, Kind::kRecycling}) {
        drafters.push_back(drafter_for(each, target));
      }
      return std::move(make_controller(std::move(drafters), cost, {})).value();
    }
    case Kind::kGated: {
      static const PassCost cost({{1, 1.0, 0.0}, {64, 1.5, 0.0}});
      return make_gate(drafter_for(Kind::kSuffixTree, target), cost, {});
    }
    case Kind::kLayerSkip:
    case Kind::kDraftModel:
    case Kind::kModelTree:
    case Kind::kStaticTree:
    case Kind::kHead:
    case Kind::kHeadTree:
      break;
  }
  DraftModelOptions options;
  options.num_tokens = kind == Kind::kDraftModel ? 5 : kMaxNodes;
  if (kind == Kind::kModelTree) options.top_k = 4;
  if (kind == Kind::kStaticTree) options.shape = find_static_tree("medusa");
  options.vocab = draft.vocab;
  options.max_positions = kPositions;
  options.max_sequences = 2;
  if (kind == Kind::kLayerSkip) {
    return std::move(make_layer_skip_drafter(target, {1}, options)).value();
  }
  return std::move(make_draft_model_drafter(draft_file.load(test::model_options()), options))
      .value();
}

SamplingParams sampled() {
  SamplingParams params;
  params.temperature = 0.9;
  params.top_k = 40;
  params.top_p = 0.95;
  params.min_p = 0.01;
  params.repetition_penalty = 1.1;
  params.frequency_penalty = 0.1;
  params.presence_penalty = 0.1;
  params.penalty_window = -1;
  params.logit_bias = {{3, -1.0f}};
  return params;
}

// Proposes what a greedy sequence will say, kMaxNodes at a time, and else what `inner` does.
class Opener final : public test::TestDrafter {
 public:
  Opener(Drafter* inner, std::vector<int32_t> truth) : inner_(inner), truth_(std::move(truth)) {
    if (inner_ != nullptr) needs_ = inner_->needs();
  }
  Status open(const DraftSequence& s) override {
    return inner_ == nullptr || s.id == 0 ? Status() : inner_->open(s);
  }
  void close(SequenceId id) override {
    if (inner_ != nullptr && id != 0) inner_->close(id);
  }
  Status propose(std::span<DraftRequest> requests) override {
    if (requests[0].id != 0) return inner_ == nullptr ? Status() : inner_->propose(requests);
    for (int i = 0; i < requests[0].max_nodes; ++i) {
      requests[0].tree->add(truth_[requests[0].tokens.size() + static_cast<size_t>(i)], i - 1);
    }
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override {
    return inner_ == nullptr || commits[0].id == 0 ? Status() : inner_->observe(commits);
  }

 private:
  Drafter* inner_;
  std::vector<int32_t> truth_;
};

std::unique_ptr<Sequence> open(Decoder& decoder, uint64_t seed, const SamplingParams& sampling) {
  SequenceOptions options;
  options.sampling = sampling;
  options.max_tokens = kPositions;
  const auto prompt = test::random_tokens(seed, 60, kPromptVocab);
  std::unique_ptr<Sequence> sequence = std::move(decoder.open(prompt, options)).value();
  EXPECT_TRUE(decoder.prefill(*sequence).ok());
  return sequence;
}

// The prompt of open(decoder, 0, greedy) and what follows.
std::vector<int32_t> greedy_tokens(Model& model, const DecoderOptions& options) {
  const ModelCache owned_cache = test::cache_for(model, options, 1);
  KvCache& cache = *owned_cache;
  Decoder decoder(model, cache, nullptr, options);
  const auto sequence = open(decoder, 0, {});
  Sequence* batch[] = {sequence.get()};
  for (int i = 0; i < 2 * kMaxNodes; ++i) EXPECT_TRUE(decoder.round(batch).ok());
  return sequence->tokens;
}

// Allocations of kRounds rounds of two sequences after kWarmUp. Scratch memory grows with the
// longest run accepted, which may come at any time; so one sequence first has a whole draft
// accepted.
int64_t allocations_of(const Case& c) {
  const TinyFile& file = c.head != nullptr ? test::easy_file() : target_file();
  const auto model = file.load(test::model_options(c.threads));
  const auto inner = c.head != nullptr ? head_drafter(c, *model) : drafter_for(c.kind, *model);
  DecoderOptions options;
  options.rule = c.rule;
  options.max_positions = kPositions;
  options.max_nodes = kMaxNodes;
  Opener drafter(inner.get(), greedy_tokens(*model, options));
  const ModelCache owned_cache = test::cache_for(*model, options, 3);
  KvCache& cache = *owned_cache;
  Decoder decoder(*model, cache, &drafter, options);
  const auto opener = open(decoder, 0, {});
  Sequence* first[] = {opener.get()};
  EXPECT_TRUE(decoder.round(first).ok());
  EXPECT_EQ(opener->stats.accepted, kMaxNodes);
  const SamplingParams sampling = c.greedy ? SamplingParams() : sampled();
  const auto a = open(decoder, 1, sampling), b = open(decoder, 2, sampling);
  Sequence* batch[] = {a.get(), b.get()};
  // Lookahead has nothing to draft, and rules nothing to refuse, before its window is full and a
  // token comes back.
  const int warm_up = c.kind == Kind::kLookahead ? 5 * kWarmUp : kWarmUp;
  for (int i = 0; i < warm_up; ++i) EXPECT_TRUE(decoder.round(batch).ok());
  const int64_t before = allocations();
  for (int i = 0; i < kRounds; ++i) {
    if (!decoder.round(batch).ok()) ADD_FAILURE();
  }
  const int64_t count = allocations() - before;
  EXPECT_EQ(a->finish, FinishReason::kNone);
  EXPECT_EQ(a->stats.drafted > 0, c.kind != Kind::kPlain);
  return count;
}

// Under every rule that judges such drafts.
void expect_no_allocations(Kind kind, test::TinyHead* head = nullptr) {
  constexpr Kind kChains[] = {Kind::kPlain,     Kind::kNgram,      Kind::kEarlyExit,
                              Kind::kLayerSkip, Kind::kDraftModel, Kind::kHead};
  const bool chains = std::ranges::find(kChains, kind) != std::end(kChains);
  int turn = static_cast<int>(kind) + (head != nullptr ? static_cast<int>(head->family()) : 0);
  for (const VerifyRule rule : kVerifyRules) {
    if (!chains && rule == VerifyRule::kBlock) continue;
    ++turn;
    for (const bool greedy : {true, false}) {
      for (const int threads : {1, 2}) {
        // By day each kind meets each rule, both ways to sample and both numbers of threads.
        if (!test::nightly() && turn % 4 != (greedy ? 2 : 0) + threads - 1) continue;
        EXPECT_EQ(allocations_of({kind, rule, greedy, threads, head}), 0)
            << "kind " << static_cast<int>(kind) << ", " << verify_rule_name(rule)
            << (greedy ? ", greedy, " : ", sampled, ") << threads << " threads";
      }
    }
  }
}

TEST(Allocation, ARoundAllocatesNothing) {
  for (const Kind kind : kKinds) expect_no_allocations(kind);
}

TEST(Allocation, NorDoesOneWithAHead) {
  for (const test::HeadFamily family : test::kHeadFamilies) {
    SCOPED_TRACE(test::head_family_name(family));
    for (const Kind kind : {Kind::kHead, Kind::kHeadTree}) {
      expect_no_allocations(kind, &test::easy_head(family, true));
    }
  }
}

// The worst batch for the paths of rows: a chain, then two that grow in turn from its end.
TEST(Allocation, NoBatchAllocates) {
  ModelOptions model_options = test::model_options();
  model_options.max_rows = 96;
  const auto model = target_file().load(model_options);
  DecoderOptions options;
  options.max_positions = kPositions;
  const ModelCache owned_cache = test::cache_for(*model, options, 1);
  KvCache& cache = *owned_cache;
  const KvCache::Id id = *cache.open();
  ASSERT_TRUE(cache.reserve(id, 96).ok());
  ForwardBatch batch;
  batch.sequences.push_back({cache.pages(id), 0, id});
  for (int i = 0; i < 96; ++i) {
    BatchRow row;
    row.parent = i <= 32 ? i - 1 : i == 33 ? 31 : i - 2;
    row.position = row.parent < 0 ? 0 : batch.rows[static_cast<size_t>(row.parent)].position + 1;
    row.slot = cache.slot(id, i);
    batch.rows.push_back(row);
  }
  ASSERT_TRUE(check_batch(batch, model->config(), model_options).ok());
  const int64_t before = allocations();
  model->forward(batch, cache);
  EXPECT_EQ(allocations(), before);
}

}  // namespace aerie::allocation_test

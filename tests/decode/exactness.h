// One function that runs a setting with a drafter and without: the tests that expect the same
// tokens and the tests that plant a fault and expect others call this very function.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device/device.h"
#include "tests/testing/decoding.h"
#include "tests/testing/thread_ranks.h"
#include "tests/testing/tiny_heads.h"
#include "tests/testing/tiny_model.h"

namespace aerie {

enum class DraftKind {
  kNgram,
  kNgramTree,   // of several matches
  kPrediction,  // what plain decoding says, with mistakes
  kSuffix,
  kSuffixTree,
  kRecycling,
  kRest,  // of a corpus with what plain decoding says, with mistakes
  kLookahead,
  kEarlyExit,
  kLayerSkip,
  kOtherModel,  // a draft model that knows nothing of the target
  kSameModel,   // the target's own weights: every draft is right
  kModelTree,   // a draft model's likeliest nodes, two children each
  kStaticTree,  // a draft model's choices in EAGLE's shape
  kPrunedTree,  // the target's own weights, with most of its tokens
  kRandomChain,
  kProphetTree,  // branching, with what is right scattered over the tree
  kFirst,        // prompt lookup, or else the other model
  kMerged,       // the target's own weights, the other model and successors, merged to a tree
  kAuto,         // the controller over several matches, successors and both models
  kGated,        // the gate over prompt lookup, or else the other model
  kGatedTree,    // over a draft model's likeliest nodes
  kGatedWindow,  // over lookahead
  kSampledTree,  // drawn without replacement from the target's own weights, with little context
  // Of Setting::head.
  kHead,            // a chain
  kHeadTree,        // the likeliest nodes, three children each
  kHeadEagleTree,   // EAGLE's shape
  kHeadMedusaTree,  // Medusa's
  kHeadBeams,
  kHeadFirst,   // suffixes, or else the head
  kHeadMerged,  // the head's tree and prompt lookup, merged
  kHeadAuto,    // the controller over both and successors
  kHeadGated,   // the gate over the head's tree
};
inline constexpr DraftKind kDraftKinds[] = {
    DraftKind::kNgram,       DraftKind::kNgramTree,   DraftKind::kPrediction,
    DraftKind::kSuffix,      DraftKind::kSuffixTree,  DraftKind::kRecycling,
    DraftKind::kRest,        DraftKind::kLookahead,   DraftKind::kEarlyExit,
    DraftKind::kLayerSkip,   DraftKind::kOtherModel,  DraftKind::kSameModel,
    DraftKind::kModelTree,   DraftKind::kStaticTree,  DraftKind::kPrunedTree,
    DraftKind::kRandomChain, DraftKind::kProphetTree, DraftKind::kFirst,
    DraftKind::kMerged,      DraftKind::kAuto,        DraftKind::kGated,
    DraftKind::kGatedTree,   DraftKind::kGatedWindow};
// Whether it may decode a whole reply plainly.
bool is_gated(DraftKind kind);
const char* draft_kind_name(DraftKind kind);  // "SameModel"
std::string draft_kind_test_name(const testing::TestParamInfo<DraftKind>& info);

enum class Filter { kNone, kTopK, kTopP, kMinP, kPenalties, kAll };
inline constexpr Filter kFilters[] = {Filter::kNone, Filter::kTopK,      Filter::kTopP,
                                      Filter::kMinP, Filter::kPenalties, Filter::kAll};
const char* filter_name(Filter filter);
SamplingParams sampling_with(double temperature, Filter filter, uint64_t seed);

inline constexpr int kMaxPositions = 512;

struct Setting {
  // Of another model than the usual one; with a vocabulary at least as large. `positions` is the
  // context of it and of the cache.
  const ModelFile* target = nullptr;
  int positions = kMaxPositions;
  // Computes the target and draft models; null: the processor.
  device::Device* device = nullptr;
  int first_layer = 0;  // that it computes of them, or their last one
  DraftKind kind = DraftKind::kNgram;
  // Must outlive the drafter. If there is one, the usual model is the one of easy heads.
  test::TinyHead* head = nullptr;
  int length = 4;  // of a chain; a tree has three times as many nodes
  int chunk = 512;
  int threads = 1;
  int max_logits = 256;  // rows of a round
  int draft_rows = 48;   // that a draft model reads in a round: a prompt takes several
  kernels::KvType cache_type = kernels::KvType::kF16;
  // Positions that layers with a window keep before it (KvCache::Windows). They have room for what
  // the passes need; the comparison's plain decoding keeps everything.
  int behind = kernels::kPagePositions;
  VerifyRule rule = VerifyRule::kExact;
  // Threads that run the target together, each with a part of it, in the run that is compared; what
  // happens to the parts.
  int ranks = 1;
  test::ThreadGroup::Spoil spoil;
  std::vector<test::Request> requests;
  // What plain decoding says to these requests, if another comparison has found out.
  const test::Replies* plain = nullptr;
};

// Stands between the decoder and the target.
using Wrap = std::function<std::unique_ptr<Model>(Model& target)>;

struct Comparison {
  test::Replies plain;  // alone, one thread, the whole prompt at once
  test::Replies speculative;
  std::string difference;  // empty: the same tokens
  int window_places = 0;   // of the speculative run's cache; 0: layers have all pages
};

Comparison compare_with_plain(const Setting& setting, const Wrap& wrap = nullptr);

// The requests served twice, first with an empty cache, then with what that left.
struct ServedTwice {
  test::Replies cold, warm;
  std::string difference;  // of any of the two from plain decoding
};
ServedTwice serve_twice(const Setting& setting, int suspends, const Wrap& wrap = nullptr);

// Fails the test unless the target ran once for each round and chunk, and drafts were made and
// judged.
void expect_speculation(const Setting& setting, const test::Replies& replies);

// Plain decoding of each request by itself, by the usual model, or another for kMaxPositions.
test::Replies plain_replies(std::span<const test::Request> requests, VerifyRule rule);
test::Replies plain_replies(std::span<const test::Request> requests, const ModelFile& target);

// A prompt that is the same `half` tokens twice, so that there is something to quote; `max_tokens`
// more.
test::Request request_with(const SamplingParams& sampling, int max_tokens = 200, int half = 75,
                           int vocab = test::TinySpec{}.vocab);

// Prompts of different lengths, joining and finishing at different times; one does not speculate.
std::vector<test::Request> mixed_requests(int vocab = test::TinySpec{}.vocab);

}  // namespace aerie

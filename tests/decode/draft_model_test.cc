// What a draft model proposes, what it computes for that, and what it keeps.
#include "draft/network/draft_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "draft/network/layer_skip.h"
#include "draft/network/text_draft_model.h"
#include "sampling/inverse_cdf.h"
#include "sampling/sampler.h"
#include "tests/testing/tiny_model.h"
#include "tests/verify/chi_square.h"

namespace aerie::draft_model_test {

using test::TinyFile;
using test::TinySpec;

constexpr int kVocab = 96;

const TinyFile& file() {
  static const TinyFile tiny([] {
    TinySpec spec;
    spec.layers = 1;
    return spec;
  }());
  return tiny;
}

// Writes down the rows of each pass.
class Watched final : public Model {
 public:
  struct Pass {
    std::vector<int32_t> positions;
    std::vector<int32_t> tokens;
  };

  Watched(std::unique_ptr<Model> model, std::vector<Pass>& passes)
      : model_(std::move(model)), passes_(passes) {}
  const ModelConfig& config() const override { return model_->config(); }
  int64_t weight_bytes() const override { return model_->weight_bytes(); }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override {
    EXPECT_TRUE(check_batch(batch, config(), test::model_options()).ok());
    Pass& pass = passes_.emplace_back();
    for (const BatchRow& row : batch.rows) {
      pass.positions.push_back(row.position);
      pass.tokens.push_back(row.token);
    }
    return model_->forward(batch, cache);
  }

 private:
  std::unique_ptr<Model> model_;
  std::vector<Pass>& passes_;
};

class DraftModelTest : public testing::Test {
 protected:
  static DraftModelOptions tree_options(int nodes, int steps, int top_k) {
    DraftModelOptions options;
    options.num_tokens = nodes;
    options.num_steps = steps;
    options.top_k = top_k;
    return options;
  }

  void make(DraftModelOptions options, const DraftSequence& sequence, int sequences = 1,
            int target_vocab = kVocab) {
    options.vocab = target_vocab;
    options.max_positions = 400;
    options.max_sequences = sequences;
    auto model = std::make_unique<Watched>(file().load(test::model_options()), passes_);
    drafter_ = std::move(make_draft_model_drafter(std::move(model), options)).value();
    for (int i = 0; i < sequences; ++i) {
      DraftSequence one = sequence;
      one.id = i;
      one.max_tokens = 400;
      ASSERT_TRUE(drafter_->open(one).ok());
    }
  }

  TokenTree propose(const std::vector<int32_t>& tokens, int max_nodes = 100, int max_depth = 100) {
    TokenTree tree;
    DraftRequest request{.id = 0, .tokens = tokens, .max_nodes = max_nodes, .tree = &tree};
    request.max_depth = max_depth;
    passes_.clear();
    EXPECT_TRUE(drafter_->propose({&request, 1}).ok());
    return tree;
  }

  // `before` tokens were there; those since were accepted but for the last.
  void observe(const std::vector<int32_t>& tokens, size_t before) {
    DraftCommit commit;
    commit.id = 0;
    commit.tokens = tokens;
    commit.first = static_cast<int>(before) - 1;
    commit.rows = static_cast<int>(tokens.size() - before);
    EXPECT_TRUE(drafter_->observe({&commit, 1}).ok());
  }

  std::vector<Watched::Pass> passes_;
  std::unique_ptr<Drafter> drafter_;
};

// Of whose caches the planes are its own; without room for them it says so.
class Holder final : public Model {
 public:
  struct Calls {
    int attached = 0, detached = 0, here = 0;
  };
  Holder(Calls& calls, bool has_room)
      : model_(file().load(test::model_options())), calls_(calls), has_room_(has_room) {}

  const ModelConfig& config() const override { return model_->config(); }
  int64_t weight_bytes() const override { return model_->weight_bytes(); }
  ForwardOutputs forward(const ForwardBatch& batch, KvCache& cache) override {
    return model_->forward(batch, cache);
  }
  KvCache::Planes cache_planes() const override { return KvCache::Planes::kElsewhere; }
  Status attach(KvCache& cache, std::span<const int32_t> /*skipped*/) override {
    if (!has_room_) return {StatusCode::kResourceExhausted, "no room on the device"};
    ++calls_.attached;
    calls_.here += cache.plane(0) != nullptr ? 1 : 0;
    attached_ = &cache;
    return {};
  }
  void detach(KvCache& cache) override {
    EXPECT_EQ(attached_, &cache);
    ++calls_.detached;
  }

 private:
  std::unique_ptr<Model> model_;
  Calls& calls_;
  bool has_room_;
  const KvCache* attached_ = nullptr;
};

TEST_F(DraftModelTest, TheModelKnowsItsCacheAndItsPlanes) {
  TinySpec spoken;
  spoken.tokenizer = true;
  spoken.vocab = test::kByteVocab;
  const TinyFile speaking(spoken);
  const auto bytes = Tokenizer::from_gguf(speaking.gguf()).value();
  using Make = std::function<Expected<std::unique_ptr<Drafter>>(std::unique_ptr<Model>)>;
  DraftModelOptions options = tree_options(4, 4, 1);
  options.vocab = kVocab;
  options.max_positions = 100;
  options.max_sequences = 1;
  const Make makers[] = {
      [&](auto model) { return make_draft_model_drafter(std::move(model), options); },
      [&](auto model) {
        return make_text_draft_model_drafter(std::move(model), *bytes, *bytes, options);
      }};
  for (const Make& make : makers) {
    Holder::Calls calls;
    {
      const auto drafter = make(std::make_unique<Holder>(calls, true));
      ASSERT_TRUE(drafter.ok()) << drafter.status().message();
      EXPECT_EQ(calls.attached, 1);
      EXPECT_EQ(calls.detached, 0);
      EXPECT_EQ(calls.here, 0);
    }
    EXPECT_EQ(calls.detached, 1);
    const Status status = make(std::make_unique<Holder>(calls, false)).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(status.message(), "no room on the device");
    EXPECT_EQ(calls.detached, 1);
  }
  // Without some of its layers it is still the model that knows.
  Holder::Calls calls;
  Holder target(calls, true);
  options.max_rows = 8;
  const auto thin = make_layer_skip_drafter(target, {}, options);
  ASSERT_TRUE(thin.ok()) << thin.status().message();
  EXPECT_EQ(calls.attached, 1);
  EXPECT_EQ(calls.here, 0);
}

// Of the whole model.
std::vector<float> logits_after(const std::vector<int32_t>& tokens) {
  const std::unique_ptr<Model> model = file().load(test::model_options());
  const ModelCache owned_cache = make_cache(*model, {.positions = 400, .sequences = 1}).value();
  KvCache& cache = *owned_cache;
  const KvCache::Id id = *cache.open();
  const auto rows = static_cast<int>(tokens.size());
  EXPECT_TRUE(cache.reserve(id, rows).ok());
  ForwardBatch batch;
  batch.sequences.push_back({cache.pages(id), 0, id});
  for (int i = 0; i < rows; ++i) {
    BatchRow row;
    row.token = tokens[static_cast<size_t>(i)];
    row.position = i;
    row.slot = cache.slot(id, i);
    row.parent = i - 1;
    row.wants_logits = i == rows - 1;
    batch.rows.push_back(row);
  }
  const std::span<const float> logits = model->forward(batch, cache).logits_of(0);
  return {logits.begin(), logits.end()};
}

DraftSequence sampled(double temperature, DraftNoise noise, uint64_t seed = 1) {
  DraftSequence sequence;
  sequence.sampling.temperature = temperature;
  sequence.sampling.seed = seed;
  sequence.noise = noise;
  return sequence;
}

int deepest(const TokenTree& tree) {
  int depth = 0;
  for (const TokenTree::Node& node : tree.nodes) depth = std::max(depth, node.depth);
  return depth;
}

// The path to the deepest node.
std::vector<int32_t> longest_path(const TokenTree& tree) {
  const auto end = std::ranges::max_element(tree.nodes, {}, &TokenTree::Node::depth);
  std::vector<int32_t> path;
  for (auto i = static_cast<int32_t>(end - tree.nodes.begin()); i >= 0;
       i = tree.nodes[static_cast<size_t>(i)].parent) {
    path.insert(path.begin(), tree.nodes[static_cast<size_t>(i)].token);
  }
  return path;
}

// A long prompt is read over several calls, in which others' drafts do not wait for all of it.
TEST_F(DraftModelTest, ReadsNoMoreInACallThanAPass) {
  DraftModelOptions options = tree_options(4, 4, 1);
  const std::vector<int32_t> text = test::random_tokens(5, 150, kVocab);
  make(options, {});
  const TokenTree expected = propose(text);
  ASSERT_EQ(expected.size(), 4);
  options.max_rows = 32;
  make(options, {}, 2);
  const std::vector<int32_t> other = {1, 2, 3};
  std::vector<int> unread;
  TokenTree tree, beside;
  while (tree.empty() && unread.size() < 20) {
    beside.clear();
    DraftRequest requests[] = {{.id = 0, .tokens = text, .max_nodes = 100, .tree = &tree},
                               {.id = 1, .tokens = other, .max_nodes = 100, .tree = &beside}};
    passes_.clear();
    ASSERT_TRUE(drafter_->propose(requests).ok());
    EXPECT_EQ(beside.size(), 4);
    for (size_t i = 0; i < passes_.size(); ++i) {
      EXPECT_LE(passes_[i].tokens.size(), i == 0 ? 32u : 8u);
    }
    unread.push_back(requests[0].unread);
  }
  EXPECT_EQ(unread, (std::vector<int>{118, 86, 54, 22, 0}));
  ASSERT_EQ(tree.size(), expected.size());
  for (int i = 0; i < tree.size(); ++i) {
    EXPECT_EQ(tree.nodes[static_cast<size_t>(i)].token,
              expected.nodes[static_cast<size_t>(i)].token);
  }
}

TEST_F(DraftModelTest, RunsNoPassThatCannotBeUsed) {
  make(tree_options(12, 6, 3), sampled(0.0, DraftNoise::kTarget));
  const std::vector<int32_t> tokens = test::random_tokens(1, 4, kVocab);
  EXPECT_LE(propose(tokens).size(), 12);
  EXPECT_LE(passes_.size(), 6u);
  for (int depth = 1; depth < 5; ++depth) {
    EXPECT_LE(deepest(propose(tokens, 100, depth)), depth);
    EXPECT_LE(passes_.size(), static_cast<size_t>(depth));
  }
  for (int nodes = 1; nodes < 9; ++nodes) {
    EXPECT_EQ(propose(tokens, nodes).size(), nodes);
    EXPECT_LE(passes_.size(), static_cast<size_t>(nodes));
  }
  EXPECT_TRUE(propose(tokens, 0).empty());
  EXPECT_TRUE(propose(tokens, 5, 0).empty());
  EXPECT_TRUE(passes_.empty());
}

// The next round reads the new root alone, whichever branch was right.
TEST_F(DraftModelTest, KeepsWhatWasRight) {
  make(tree_options(14, 5, 3), sampled(1.0, DraftNoise::kTarget));
  std::vector<int32_t> tokens = test::random_tokens(1, 20, kVocab);
  for (int round = 0; round < 15; ++round) {
    const TokenTree tree = propose(tokens);
    ASSERT_GE(deepest(tree), 2);
    const size_t before = tokens.size();
    const std::vector<int32_t> path = longest_path(tree);
    // The last one is the root of the next round.
    tokens.insert(tokens.end(), path.begin(), path.end());
    observe(tokens, before);
    propose(tokens, 1);
    ASSERT_EQ(passes_.size(), 1u);
    EXPECT_EQ(passes_[0].tokens, std::vector<int32_t>{tokens.back()});
    EXPECT_EQ(passes_[0].positions, std::vector<int32_t>{static_cast<int32_t>(tokens.size()) - 1});
  }
}

// What is in the cache is what a fresh drafter would compute.
TEST_F(DraftModelTest, ProposesTheSameAsOneThatReadsEverythingAnew) {
  for (const double temperature : {0.0, 1.0}) {
    for (const DraftNoise noise : {DraftNoise::kTarget, DraftNoise::kOwn}) {
      DraftModelOptions options = tree_options(25, 0, 1);
      options.shape = find_static_tree("eagle");
      std::vector<int32_t> tokens = test::random_tokens(3, 20, kVocab);
      make(options, sampled(temperature, noise));
      for (int round = 0; round < 12; ++round) {
        const TokenTree tree = propose(tokens);
        auto kept = std::move(drafter_);
        make(options, sampled(temperature, noise));
        const TokenTree anew = propose(tokens);
        drafter_ = std::move(kept);
        ASSERT_EQ(tree.size(), anew.size());
        for (int i = 0; i < tree.size(); ++i) {
          const auto at = static_cast<size_t>(i);
          EXPECT_EQ(tree.nodes[at].token, anew.nodes[at].token);
          EXPECT_EQ(tree.nodes[at].parent, anew.nodes[at].parent);
        }
        const std::vector<int32_t> path = longest_path(tree);
        const size_t before = tokens.size();
        const int settled = 1 + round % 2;
        tokens.insert(tokens.end(), path.begin(), path.begin() + settled);
        // Perhaps not drafted, but where mistakes would be learned from.
        const bool learns = temperature > 0.0 && noise == DraftNoise::kTarget;
        tokens.push_back(learns ? path[static_cast<size_t>(settled)] : round);
        observe(tokens, before);
      }
    }
  }
}

// A chain's tokens are what the target's sampler makes of the draft model's logits; a tree's first
// choices are the chain's.
// Rows of a draft model that stand for some of the target's tokens: what is read and what is
// drafted.
TEST_F(DraftModelTest, ReadsAndDraftsByIdsOfItsOwn) {
  constexpr int kTargetVocab = 400, kKnown = 90;
  DraftModelOptions options = tree_options(4, 4, 1);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kKnown; ++i) ids.push_back(4 * i + 3);
  options.vocabulary =
      std::make_shared<const VocabularyMap>(VocabularyMap::of_ids(ids, kTargetVocab, kVocab));
  make(options, sampled(0.0, DraftNoise::kTarget), 1, kTargetVocab);
  const std::vector<int32_t> tokens = {8, 43, 399, 7};  // 8 and 399 are none of them
  const TokenTree tree = propose(tokens);
  ASSERT_EQ(tree.size(), 4);
  ASSERT_EQ(passes_.size(), 4u);
  EXPECT_EQ(passes_[0].tokens, (std::vector<int32_t>{kKnown, 10, kKnown, 1}));

  // The same model where its ids are the target's, but for those that are not drafted.
  std::vector<int32_t> own = passes_[0].tokens;
  for (const TokenTree::Node& node : tree.nodes) {
    const std::vector<float> logits = logits_after(own);
    const auto best = std::max_element(logits.begin(), logits.begin() + kKnown);
    own.push_back(static_cast<int32_t>(best - logits.begin()));
    EXPECT_EQ(node.token, ids[static_cast<size_t>(own.back())]);
  }
  // And drafts that are ranked by noise or drawn are of these tokens, too.
  for (const DraftNoise noise : {DraftNoise::kTarget, DraftNoise::kOwn}) {
    passes_.clear();
    make(
        [&] {
          DraftModelOptions wide = tree_options(12, 4, 3);
          wide.vocabulary = options.vocabulary;
          return wide;
        }(),
        sampled(1.5, noise), 1, kTargetVocab);
    const TokenTree drawn = propose(tokens);
    EXPECT_GT(drawn.size(), 3);
    for (const TokenTree::Node& node : drawn.nodes) {
      EXPECT_TRUE(std::ranges::binary_search(ids, node.token)) << node.token;
    }
  }
}

// Here the target draws what is likeliest, whatever the noise.
TEST_F(DraftModelTest, LearnsHowFarTheNoiseDecides) {
  const DraftSequence sequence = sampled(0.5, DraftNoise::kTarget);
  make(tree_options(1, 1, 1), sequence);
  EXPECT_TRUE(drafter_->needs().knows_noise);
  std::vector<int32_t> tokens = test::random_tokens(3, 20, kVocab);
  int fresh = 0, learned = 0;
  constexpr int kRounds = 300, kLast = 100;
  for (int round = 0; round < kRounds; ++round) {
    const int32_t first = propose(tokens).nodes.at(0).token;
    const std::vector<float> logits = logits_after(tokens);
    const auto drawn = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
    if (round >= kRounds - kLast) {
      learned += first == drawn ? 1 : 0;
      auto own = std::move(drafter_);
      make(tree_options(1, 1, 1), sequence);
      fresh += propose(tokens).nodes.at(0).token == drawn ? 1 : 0;
      drafter_ = std::move(own);
    }
    const size_t before = tokens.size();
    tokens.push_back(drawn);
    observe(tokens, before);
  }
  EXPECT_LT(fresh, kLast * 3 / 4);
  EXPECT_GT(learned, fresh + kLast / 10);
}

TEST_F(DraftModelTest, FirstChoicesAreTheChain) {
  for (const double temperature : {0.0, 0.8, 3.0}) {
    const std::vector<int32_t> tokens = test::random_tokens(7, 30, kVocab);
    make(tree_options(5, 0, 1), sampled(temperature, DraftNoise::kTarget));
    const TokenTree chain = propose(tokens);
    ASSERT_TRUE(chain.is_chain());
    DraftModelOptions shaped = tree_options(25, 0, 1);
    shaped.shape = find_static_tree("eagle");
    make(shaped, sampled(temperature, DraftNoise::kTarget));
    const TokenTree tree = propose(tokens);
    EXPECT_EQ(tree.size(), 25);
    int32_t node = -1;
    for (const TokenTree::Node& expected : chain.nodes) {
      const auto first = std::ranges::find(tree.nodes, node, &TokenTree::Node::parent);
      ASSERT_NE(first, tree.nodes.end());
      EXPECT_EQ(first->token, expected.token);
      node = static_cast<int32_t>(first - tree.nodes.begin());
    }
  }
}

TEST_F(DraftModelTest, SequencesOfABatchDoNotMatterToEachOther) {
  const auto tokens = [](int i) {
    return test::random_tokens(50 + static_cast<uint64_t>(i), 10 + 7 * i, kVocab);
  };
  std::vector<TokenTree> alone;
  for (int i = 0; i < 3; ++i) {
    make(tree_options(9, 4, 3), sampled(0.9, DraftNoise::kTarget));
    alone.push_back(propose(tokens(i)));
  }
  make(tree_options(9, 4, 3), sampled(0.9, DraftNoise::kTarget), 3);
  std::vector<TokenTree> trees(3);
  std::vector<std::vector<int32_t>> texts;
  for (int i = 0; i < 3; ++i) texts.push_back(tokens(i));
  std::vector<DraftRequest> requests;
  for (int i = 2; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    requests.push_back({.id = i, .tokens = texts[at], .max_nodes = 9, .tree = &trees[at]});
  }
  ASSERT_TRUE(drafter_->propose(requests).ok());
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(trees[i].size(), alone[i].size());
    for (size_t n = 0; n < trees[i].nodes.size(); ++n) {
      EXPECT_EQ(trees[i].nodes[n].token, alone[i].nodes[n].token);
      EXPECT_EQ(trees[i].nodes[n].parent, alone[i].nodes[n].parent);
    }
  }
}

TEST_F(DraftModelTest, DrawsWithoutReplacementFromTheDistributionItNames) {
  DraftSequence sequence = sampled(1.0, DraftNoise::kOwn, 77);
  sequence.sampling.top_k = 20;
  make(tree_options(13, 4, 3), sequence);
  const std::vector<int32_t> tokens = test::random_tokens(2, 25, kVocab);
  const TokenTree tree = propose(tokens);
  ASSERT_EQ(tree.size(), 13);
  std::map<int32_t, std::vector<int32_t>> siblings;
  for (int i = 0; i < tree.size(); ++i) {
    const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    std::vector<int32_t>& before = siblings[node.parent];
    ASSERT_NE(node.proposal, nullptr);
    EXPECT_GT(node.proposal->probability(node.token), 0.0);
    EXPECT_EQ(node.without_replacement, !before.empty());
    const double uniform = noise_uniform({77, 0}, NoiseStream::kDraft, tokens.size() - 1,
                                         static_cast<uint32_t>(i) << 16);
    EXPECT_EQ(node.token, inverse_cdf_without(*node.proposal, before, uniform));
    before.push_back(node.token);
  }
  // Children of one parent name one object, others others.
  std::set<const Distribution*> objects;
  for (const TokenTree::Node& node : tree.nodes) objects.insert(node.proposal);
  EXPECT_EQ(objects.size(), siblings.size());
}

// The shape is the same whatever is drawn, unless there is too little to draw from.
TEST_F(DraftModelTest, TheShapeDoesNotDependOnTheDraws) {
  const std::vector<int32_t> tokens = test::random_tokens(2, 25, kVocab);
  std::set<std::vector<int32_t>> shapes, drawn;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    make(tree_options(13, 4, 3), sampled(1.0, DraftNoise::kOwn, seed));
    std::vector<int32_t> shape, what;
    for (const TokenTree::Node& node : propose(tokens).nodes) {
      shape.push_back(node.parent);
      what.push_back(node.token);
    }
    shapes.insert(shape);
    drawn.insert(what);
  }
  EXPECT_EQ(shapes.size(), 1u);
  EXPECT_EQ(drawn.size(), 40u);
  DraftSequence narrow = sampled(1.0, DraftNoise::kOwn);
  narrow.sampling.top_k = 2;
  make(tree_options(13, 4, 3), narrow);
  std::map<int32_t, int> children;
  const TokenTree tree = propose(tokens);
  for (const TokenTree::Node& node : tree.nodes) EXPECT_LE(++children[node.parent], 2);
}

// P(x then y) = q(x) q(y) / (1 - q(x)).
TEST_F(DraftModelTest, SiblingsHaveTheLawOfDrawsWithoutReplacement) {
  const std::vector<int32_t> tokens = test::random_tokens(2, 6, kVocab);
  const auto drawn = [&](uint64_t seed) {
    DraftSequence sequence = sampled(1.0, DraftNoise::kOwn, seed);
    sequence.sampling.top_k = 4;
    if (seed == 0) make(tree_options(2, 1, 2), sequence);
    drafter_->close(0);
    sequence.max_tokens = 400;
    EXPECT_TRUE(drafter_->open(sequence).ok());
    TokenTree tree = propose(tokens);
    EXPECT_EQ(tree.size(), 2);
    return tree;
  };
  const TokenTree first = drawn(0);
  const Distribution& q = *first.nodes[0].proposal;
  ASSERT_EQ(q.size(), 4u);
  std::map<std::pair<int32_t, int32_t>, size_t> cells;
  std::vector<double> expected;
  for (size_t x = 0; x < 4; ++x) {
    for (size_t y = 0; y < 4; ++y) {
      if (x == y) continue;
      cells[{q.ids[x], q.ids[y]}] = expected.size();
      expected.push_back(q.probs[x] * q.probs[y] / (1.0 - q.probs[x]));
    }
  }
  stats::ChiSquareTest test(expected, {.total_variation = 0.03});
  for (int64_t i = 0; i < test.samples(); ++i) {
    const TokenTree tree = drawn(1 + static_cast<uint64_t>(i));
    test.add(cells.at({tree.nodes[0].token, tree.nodes[1].token}));
  }
  EXPECT_FALSE(test.result().rejected) << test.result().p_value;
}

}  // namespace aerie::draft_model_test

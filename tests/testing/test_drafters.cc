#include "tests/testing/test_drafters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "kv/kv_cache.h"
#include "sampling/inverse_cdf.h"
#include "sampling/sampler.h"

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

class SampledTree final : public TestDrafter {
 public:
  SampledTree(std::unique_ptr<Model> model, ModelCache cache, const SampledTreeOptions& options)
      : model_(std::move(model)),
        owned_cache_(std::move(cache)),
        cache_(*owned_cache_),
        options_(options) {}

  Status open(const DraftSequence& sequence) override {
    samplers_.emplace(sequence.id, Sampler(sequence.sampling, options_.vocab));
    return {};
  }
  void close(SequenceId id) override { samplers_.erase(id); }
  Status propose(std::span<DraftRequest> requests) override {
    distributions_.clear();
    for (DraftRequest& request : requests) grow(request);
    return {};
  }

 private:
  // Level by level, until the budget is used up: by count alone.
  void grow(DraftRequest& request) {
    TokenTree& tree = *request.tree;
    std::vector<int32_t> level = {-1};
    int draws = 0;
    for (const int width : options_.widths) {
      std::vector<int32_t> next;
      for (const int32_t parent : level) {
        if (draws >= request.max_nodes) break;
        const Distribution& q = distributions_.emplace_back(after(request, path_of(tree, parent)));
        Distribution left = q;
        for (int i = 0; i < width && draws < request.max_nodes && left.size() > 0; ++i, ++draws) {
          const int32_t node = draw(request, parent, q, left, draws);
          if (std::find(next.begin(), next.end(), node) == next.end()) next.push_back(node);
        }
      }
      level = std::move(next);
    }
    if (!options_.merges) tree.proposals.clear();
  }

  int32_t draw(DraftRequest& request, int32_t parent, const Distribution& q, Distribution& left,
               int number) {
    const Sampler& sampler = samplers_.at(request.id);
    const double uniform =
        noise_uniform(sampler.noise(), NoiseStream::kDraft, request.tokens.size() - 1,
                      static_cast<uint32_t>(number) << 16);
    const int32_t token = inverse_cdf(left, uniform);
    TokenTree& tree = *request.tree;
    int32_t node = -1;
    for (int32_t i = 0; i < tree.size() && options_.merges; ++i) {
      const TokenTree::Node& other = tree.nodes[static_cast<size_t>(i)];
      if (other.parent == parent && other.token == token) node = i;
    }
    if (node < 0) node = tree.add(token, parent, &q);
    const bool without = options_.without_replacement && options_.says_so;
    tree.nodes[static_cast<size_t>(node)].without_replacement = without;
    tree.proposals.push_back({node, &q, without});
    if (options_.without_replacement) take_out(left, token);
    return node;
  }

  static void take_out(Distribution& left, int32_t token) {
    const auto at = std::lower_bound(left.ids.begin(), left.ids.end(), token) - left.ids.begin();
    left.ids.erase(left.ids.begin() + at);
    left.probs.erase(left.probs.begin() + at);
    double sum = 0;
    for (const double p : left.probs) sum += p;
    for (double& p : left.probs) p /= sum;
  }

  static std::vector<int32_t> path_of(const TokenTree& tree, int32_t node) {
    std::vector<int32_t> path;
    for (; node >= 0; node = tree.nodes[static_cast<size_t>(node)].parent) {
      path.insert(path.begin(), tree.nodes[static_cast<size_t>(node)].token);
    }
    return path;
  }

  Distribution after(const DraftRequest& request, const std::vector<int32_t>& path) {
    std::vector<int32_t> context(request.tokens.begin(), request.tokens.end());
    context.insert(context.end(), path.begin(), path.end());
    const auto window = std::min(context.size(), static_cast<size_t>(options_.window));
    context.erase(context.begin(), context.end() - static_cast<long>(window));
    auto found = logits_.find(context);
    if (found == logits_.end()) found = logits_.emplace(context, forward(context)).first;
    Distribution q;
    samplers_.at(request.id).distribution(found->second, {request.tokens, path, nullptr}, q);
    return q;
  }

  std::vector<float> forward(const std::vector<int32_t>& tokens) {
    const KvCache::Id id = *cache_.open();
    const int length = static_cast<int>(tokens.size());
    EXPECT_TRUE(cache_.reserve(id, length).ok());
    ForwardBatch batch;
    batch.sequences.push_back({cache_.pages(id), 0, id});
    for (int i = 0; i < length; ++i) {
      BatchRow row;
      row.token = tokens[static_cast<size_t>(i)];
      row.position = i;
      row.slot = cache_.slot(id, i);
      row.parent = i - 1;
      row.wants_logits = i == length - 1;
      batch.rows.push_back(row);
    }
    const auto logits = model_->forward(batch, cache_).logits_of(0);
    std::vector<float> copy(logits.begin(), logits.begin() + options_.vocab);
    cache_.close(id);
    return copy;
  }

  std::unique_ptr<Model> model_;
  ModelCache owned_cache_;
  KvCache& cache_;
  SampledTreeOptions options_;
  std::map<SequenceId, Sampler> samplers_;
  std::map<std::vector<int32_t>, std::vector<float>> logits_;
  std::deque<Distribution> distributions_;  // what nodes point to
};

}  // namespace

std::unique_ptr<Drafter> make_sampled_tree_drafter(std::unique_ptr<Model> model,
                                                   const SampledTreeOptions& options) {
  auto cache =
      make_cache(*model, {.positions = options.window + kernels::kPagePositions, .sequences = 1});
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return std::make_unique<SampledTree>(std::move(model), std::move(*cache), options);
}

std::unique_ptr<Drafter> make_random_chain_drafter(uint64_t seed, int length, int vocab) {
  return std::make_unique<RandomChain>(seed, length, vocab);
}

std::unique_ptr<Drafter> make_prophet_tree_drafter(uint64_t seed, int nodes, int vocab,
                                                   Prophecies prophecies) {
  return std::make_unique<ProphetTree>(seed, nodes, vocab, std::move(prophecies));
}

}  // namespace aerie::test

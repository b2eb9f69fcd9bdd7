// How close the forward pass comes to an independent implementation of the same file (recorded in
// tests/golden/, see the README there) and to a float computation on the dequantised weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "format/gguf.h"
#include "kernels/backend.h"
#include "model/model.h"

namespace aerie {
namespace {

constexpr int kChunk = 50;

struct Case {
  const char* name;
  const char* model;
  const char* golden;
  const char* fetch;  // what brings the model
  // Windows of 500 positions that are computed in scalar floats, too, which takes long.
  int float_windows;
};
constexpr Case kCases[] = {
    {"SmolLM2", "models/SmolLM2-135M-Instruct.Q4_1.gguf", "tests/golden/smollm2-fidelity.bin",
     "scripts/fetch_model.sh", 4},
    {"Gemma3", "models/gemma-3-270m-q4_k_m.gguf", "tests/golden/gemma3-fidelity.bin",
     "scripts/fetch_model.sh gemma3", 1},
};

struct Record {
  float next_logprob;
  std::vector<uint32_t> ids;
  std::vector<float> logprobs;
};

struct Window {
  std::vector<int32_t> tokens;
  std::vector<Record> records;
};

template <typename T>
void read_into(std::ifstream& file, T* out, size_t count) {
  file.read(reinterpret_cast<char*>(out), static_cast<std::streamsize>(count * sizeof(T)));
}

// Version 1 has ids of 16 bits, version 2 of 32.
template <typename Id>
std::vector<uint32_t> read_ids(std::ifstream& file, size_t count) {
  std::vector<Id> ids(count);
  read_into(file, ids.data(), count);
  return {ids.begin(), ids.end()};
}

std::vector<Window> read_golden(const char* path) {
  std::ifstream file(path, std::ios::binary);
  char magic[8] = {};
  uint32_t header[4] = {};  // version, windows, tokens of a window, top k
  read_into(file, magic, 8);
  read_into(file, header, 4);
  EXPECT_TRUE(file && std::memcmp(magic, "AERIEFID", 8) == 0 && (header[0] == 1 || header[0] == 2))
      << path;
  std::vector<Window> windows(header[1]);
  for (Window& window : windows) {
    window.tokens.resize(header[2]);
    read_into(file, window.tokens.data(), window.tokens.size());
    window.records.resize(header[2] - 1);
    for (Record& record : window.records) {
      record.logprobs.resize(header[3]);
      read_into(file, &record.next_logprob, 1);
      record.ids = header[0] == 1 ? read_ids<uint16_t>(file, header[3])
                                  : read_ids<uint32_t>(file, header[3]);
      read_into(file, record.logprobs.data(), record.logprobs.size());
    }
  }
  EXPECT_TRUE(file) << path << " is shorter than its header says";
  return windows;
}

// Log-probabilities of the whole vocabulary.
std::vector<double> log_softmax(std::span<const float> logits) {
  double largest = -INFINITY;
  for (const float x : logits) largest = std::max(largest, double{x});
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(double{x} - largest);
  std::vector<double> out(logits.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = double{logits[i]} - largest - std::log(sum);
  return out;
}

class Runner {
 public:
  Runner(const char* path, kernels::Isa isa, kernels::KvType type = kernels::KvType::kF16)
      : pool_(available_cpus()) {
    auto file = GgufFile::open(path);
    EXPECT_TRUE(file.ok()) << file.status().message();
    file_ = std::move(*file);
    ModelOptions options;
    options.backend = kernels::backend(isa);
    options.pool = &pool_;
    options.max_rows = kChunk;
    options.max_logits = kChunk;
    options.max_positions = 512;
    auto model = load_model(*file_, options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    model_ = std::move(*model);
    auto cache = KvCache::create(model_->config(), 512, 1, type);
    EXPECT_TRUE(cache.ok());
    cache_ = std::make_unique<KvCache>(std::move(*cache));
  }

  // Visits the log-probabilities after each of the tokens, but for the last.
  template <typename Visit>
  void each_position(const std::vector<int32_t>& tokens, const Visit& visit) {
    const auto id = cache_->open();
    const int length = static_cast<int>(tokens.size()) - 1;
    for (int first = 0; first < length; first += kChunk) {
      const int rows = std::min(kChunk, length - first);
      ASSERT_TRUE(cache_->reserve(*id, rows).ok());
      ForwardBatch batch;
      batch.sequences.push_back({cache_->pages(*id), first});
      for (int i = 0; i < rows; ++i) {
        batch.rows.push_back({0, tokens[static_cast<size_t>(first + i)], first + i,
                              cache_->slot(*id, i), i - 1, true, false});
      }
      const ForwardOutputs out = model_->forward(batch, *cache_);
      cache_->commit_first(*id, rows);
      for (int i = 0; i < rows; ++i) visit(first + i, log_softmax(out.logits_of(i)));
    }
    cache_->close(*id);
  }

 private:
  ThreadPool pool_;
  std::unique_ptr<GgufFile> file_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvCache> cache_;
};

// KL(golden || ours) over the recorded tokens and one bucket for all others: a lower bound to the
// whole vocabulary's, which docs/fidelity.md has.
double divergence(const Record& golden, const std::vector<double>& ours) {
  double kl = 0.0, golden_mass = 0.0, our_mass = 0.0;
  for (size_t i = 0; i < golden.ids.size(); ++i) {
    const double p = std::exp(double{golden.logprobs[i]});
    kl += p * (double{golden.logprobs[i]} - ours[golden.ids[i]]);
    golden_mass += p;
    our_mass += std::exp(ours[golden.ids[i]]);
  }
  const double rest = std::max(1e-12, 1.0 - golden_mass);
  const double our_rest = std::max(1e-12, 1.0 - our_mass);
  return kl + rest * std::log(rest / our_rest);
}

struct Score {
  double kl = 0.0;
  double loss = 0.0;
  double golden_loss = 0.0;
  int same_top = 0;
  int positions = 0;
};

Score score_against_golden(Runner& runner, const char* path) {
  Score score;
  for (const Window& window : read_golden(path)) {
    runner.each_position(window.tokens, [&](int position, const std::vector<double>& ours) {
      const Record& golden = window.records[static_cast<size_t>(position)];
      const auto next = static_cast<size_t>(window.tokens[static_cast<size_t>(position) + 1]);
      score.kl += divergence(golden, ours);
      score.loss -= ours[next];
      score.golden_loss -= double{golden.next_logprob};
      const auto top =
          static_cast<size_t>(std::max_element(ours.begin(), ours.end()) - ours.begin());
      score.same_top += top == golden.ids[0] ? 1 : 0;
      ++score.positions;
    });
  }
  return score;
}

class Fidelity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!std::ifstream(GetParam().model).good()) {
      GTEST_SKIP() << GetParam().model << " is missing: run " << GetParam().fetch;
    }
  }
};

TEST_P(Fidelity, MatchesAnIndependentImplementation) {
  // The other vector instructions compute the same bits: tests/kernels/isa_agreement_test.cc.
  Runner runner(GetParam().model, kernels::best_isa());
  const Score score = score_against_golden(runner, GetParam().golden);
  ASSERT_EQ(score.positions, 2000);
  const double kl = score.kl / score.positions;
  const double perplexity = std::exp(score.loss / score.positions);
  const double golden = std::exp(score.golden_loss / score.positions);
  std::printf("mean KL %.5f, perplexity %.4f against %.4f (%+.3f %%), same top token %d\n", kl,
              perplexity, golden, 100.0 * (perplexity / golden - 1.0), score.same_top);
  EXPECT_LT(kl, 0.01);
  EXPECT_NEAR(perplexity / golden, 1.0, 0.01);
}

// KL(yardstick || other) over the whole vocabulary, and the perplexities.
struct Difference {
  double kl = 0.0;
  double loss = 0.0;
  double yardstick_loss = 0.0;
  int positions = 0;

  double mean() const { return kl / positions; }
  double perplexity() const { return std::exp(loss / positions); }
  double yardstick_perplexity() const { return std::exp(yardstick_loss / positions); }
};

Difference difference(Runner& yardstick, Runner& other, const std::vector<Window>& windows) {
  Difference sum;
  for (const Window& window : windows) {
    std::vector<std::vector<float>> expected;
    yardstick.each_position(window.tokens, [&](int, const std::vector<double>& logprobs) {
      expected.emplace_back(logprobs.begin(), logprobs.end());
    });
    other.each_position(window.tokens, [&](int position, const std::vector<double>& ours) {
      const std::vector<float>& p = expected[static_cast<size_t>(position)];
      const auto next = static_cast<size_t>(window.tokens[static_cast<size_t>(position) + 1]);
      for (size_t i = 0; i < p.size(); ++i) {
        sum.kl += std::exp(double{p[i]}) * (double{p[i]} - ours[i]);
      }
      sum.loss -= ours[next];
      sum.yardstick_loss -= double{p[next]};
      ++sum.positions;
    });
  }
  return sum;
}

TEST_P(Fidelity, MatchesAFloatComputationOnTheDequantisedWeights) {
  if (kernels::best_isa() == kernels::Isa::kReference) GTEST_SKIP() << "no vector instructions";
  Runner fast(GetParam().model, kernels::best_isa());
  Runner reference(GetParam().model, kernels::Isa::kReference);
  std::vector<Window> windows = read_golden(GetParam().golden);
  if (std::getenv("AERIE_ALL_WINDOWS") == nullptr) {
    windows.resize(static_cast<size_t>(GetParam().float_windows));
  }
  const Difference d = difference(reference, fast, windows);
  std::printf("mean KL %.5f, perplexity %.4f against %.4f in float\n", d.mean(), d.perplexity(),
              d.yardstick_perplexity());
  EXPECT_GE(d.positions, 500);
  EXPECT_LT(d.mean(), 0.003);
}

// What a cache of 8 bits costs: the same weights and kernels, only keys and values rounded more.
TEST_P(Fidelity, ACacheOfEightBitsIsCloseToOneOfSixteen) {
  Runner halves(GetParam().model, kernels::best_isa());
  Runner codes(GetParam().model, kernels::best_isa(), kernels::KvType::kQ8);
  const Difference d = difference(halves, codes, read_golden(GetParam().golden));
  std::printf("mean KL %.6f, perplexity %.4f against %.4f with 16 bits (%+.3f %%)\n", d.mean(),
              d.perplexity(), d.yardstick_perplexity(),
              100.0 * (d.perplexity() / d.yardstick_perplexity() - 1.0));
  ASSERT_EQ(d.positions, 2000);
  EXPECT_LT(d.mean(), 0.01);
  EXPECT_NEAR(d.perplexity() / d.yardstick_perplexity(), 1.0, 0.01);
}

std::string case_name(const testing::TestParamInfo<Case>& tested) {
  return tested.param.name;
}

INSTANTIATE_TEST_SUITE_P(Models, Fidelity, testing::ValuesIn(kCases), case_name);

}  // namespace
}  // namespace aerie

// How close the forward pass comes to an independent implementation of the same file (recorded in
// tests/golden/, see the README there) and to a float computation on the dequantised weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "format/gguf/gguf.h"
#include "kernels/backend.h"
#include "tests/model/text_runner.h"
#include "tests/testing/nightly.h"

namespace aerie::fidelity_test {

using test::Difference;
using test::read_golden;
using test::Record;
using test::TextRunner;
using test::Window;

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
     "scripts/fetch_model.sh", 1},
    {"Gemma3", "models/gemma-3-270m-q4_k_m.gguf", "tests/golden/gemma3-fidelity.bin",
     "scripts/fetch_model.sh gemma3", 1},
};

// By day: more than a chunk of attention, which is 256 positions.
constexpr size_t kFloatPositionsByDay = 300;

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

void add_position(const Window& window, int position, const std::vector<double>& ours,
                  Score& score) {
  const Record& golden = window.records[static_cast<size_t>(position)];
  const auto next = static_cast<size_t>(window.tokens[static_cast<size_t>(position) + 1]);
  score.kl += divergence(golden, ours);
  score.loss -= ours[next];
  score.golden_loss -= double{golden.next_logprob};
  const auto top = static_cast<size_t>(std::max_element(ours.begin(), ours.end()) - ours.begin());
  score.same_top += top == golden.ids[0] ? 1 : 0;
  ++score.positions;
}

// What takes the same passes of the best instructions with a cache of 16 bits.
struct Measured {
  Score score;            // of these passes, against the recorded ones
  Difference eight_bits;  // of a cache of 8 bits from them
};

Measured measure(const GgufFile& file, const char* golden) {
  // The other vector instructions compute the same bits: tests/kernels/isa_agreement_test.cc.
  TextRunner halves(file, kernels::best_isa());
  TextRunner codes(file, kernels::best_isa(), kernels::KvType::kQ8);
  Measured measured;
  measured.eight_bits =
      difference(halves, codes, read_golden(golden),
                 [&](const Window& window, int position, const std::vector<double>& ours) {
                   add_position(window, position, ours, measured.score);
                 });
  return measured;
}

class Fidelity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!std::ifstream(GetParam().model).good()) {
      GTEST_SKIP() << GetParam().model << " is missing: run " << GetParam().fetch;
    }
    auto file = GgufFile::open(GetParam().model);
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = std::move(*file);
  }

  // Measured once for the tests of a model.
  const Measured& measured() const {
    static std::map<std::string, Measured> all;
    const char* const golden = GetParam().golden;
    const auto found = all.find(golden);
    return found != all.end() ? found->second : all[golden] = measure(*file_, golden);
  }

  std::unique_ptr<GgufFile> file_;
};

TEST_P(Fidelity, MatchesAnIndependentImplementation) {
  const Score& score = measured().score;
  ASSERT_EQ(score.positions, 2000);
  const double kl = score.kl / score.positions;
  const double perplexity = std::exp(score.loss / score.positions);
  const double golden = std::exp(score.golden_loss / score.positions);
  std::printf("mean KL %.5f, perplexity %.4f against %.4f (%+.3f %%), same top token %d\n", kl,
              perplexity, golden, 100.0 * (perplexity / golden - 1.0), score.same_top);
  EXPECT_LT(kl, 0.01);
  EXPECT_NEAR(perplexity / golden, 1.0, 0.01);
}

TEST_P(Fidelity, MatchesAFloatComputationOnTheDequantisedWeights) {
  if (kernels::best_isa() == kernels::Isa::kReference) GTEST_SKIP() << "no vector instructions";
  TextRunner fast(*file_, kernels::best_isa());
  TextRunner reference(*file_, kernels::Isa::kReference);
  std::vector<Window> windows = read_golden(GetParam().golden);
  if (std::getenv("AERIE_ALL_WINDOWS") == nullptr) {
    windows.resize(static_cast<size_t>(GetParam().float_windows));
    if (!test::nightly()) windows[0].tokens.resize(kFloatPositionsByDay + 1);
  }
  const Difference d = difference(reference, fast, windows);
  std::printf("mean KL %.5f, perplexity %.4f against %.4f in float\n", d.mean(), d.perplexity(),
              d.yardstick_perplexity());
  EXPECT_GE(d.positions, test::nightly() ? 500 : 300);
  EXPECT_LT(d.mean(), 0.003);
}

// What a cache of 8 bits costs: the same weights and kernels, only keys and values rounded more.
TEST_P(Fidelity, ACacheOfEightBitsIsCloseToOneOfSixteen) {
  const Difference& d = measured().eight_bits;
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

}  // namespace aerie::fidelity_test

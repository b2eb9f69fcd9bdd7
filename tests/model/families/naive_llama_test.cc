// The forward pass against an independent computation in double: shapes, ties, rotary scalings,
// taps.

#include "tests/model/families/naive_llama.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/model/batches.h"

namespace aerie::naive_llama_test {

using test::GgufWriter;
using test::TinyFile;
using test::TinySpec;

TinySpec small() {
  TinySpec spec;
  spec.hidden = 48;
  spec.ffn = 80;
  spec.vocab = 64;
  return spec;
}

// The logits are around 3. The cache holds 11 bits, which is what the difference comes from.
void expect_close(const std::vector<std::vector<double>>& expected,
                  const std::vector<RowOutputs>& actual, double tolerance = 0.02) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t p = 0; p < expected.size(); ++p) {
    ASSERT_EQ(expected[p].size(), actual[p].logits.size());
    for (size_t i = 0; i < expected[p].size(); ++i) {
      ASSERT_NEAR(actual[p].logits[i], expected[p][i], tolerance)
          << "position " << p << ", token " << i;
    }
  }
}

void check(const TinySpec& spec, const GgufWriter& writer, const NaiveRope& rope, int length = 80,
           double tolerance = 0.02) {
  const TinyFile file(writer);
  const std::vector<int32_t> tokens = test::random_tokens(3, length, spec.vocab);
  const auto expected = NaiveLlama(file.gguf(), spec, rope).logits(tokens);
  for (const kernels::Isa isa : kernels::built_isas()) {
    if (!kernels::isa_supported(isa)) continue;
    SCOPED_TRACE(std::string(kernels::isa_name(isa)));
    Bench bench(file, isa, 1, 1);
    expect_close(expected, bench.read(*bench.cache().open(), tokens, 33), tolerance);
  }
}

void check(const TinySpec& spec) {
  check(spec, tiny_gguf(spec), plain_rope(spec.head_dim));
}

TEST(NaiveLlama, GroupedQueries) {
  check(small());
}

TEST(NaiveLlama, OneKeyForAllHeads) {
  TinySpec spec = small();
  spec.heads = 6;
  spec.kv_heads = 1;
  check(spec);
}

TEST(NaiveLlama, AKeyForEachHead) {
  TinySpec spec = small();
  spec.heads = spec.kv_heads = 3;
  check(spec);
}

TEST(NaiveLlama, WiderHeads) {
  TinySpec spec = small();
  spec.heads = 2;
  spec.kv_heads = 1;
  spec.head_dim = 80;
  check(spec);
}

TEST(NaiveLlama, OneLayerOneHead) {
  TinySpec spec = small();
  spec.layers = spec.heads = spec.kv_heads = 1;
  spec.ffn = 16;
  check(spec);
}

TEST(NaiveLlama, TiedHead) {
  TinySpec spec = small();
  spec.tied = true;
  check(spec);
}

// 4 bits are in the file, which both read; activations in 8 bits are the engine's own.
TEST(NaiveLlama, BlockQuantised) {
  TinySpec spec;
  spec.dtype = DType::kQ4_1;
  check(spec, tiny_gguf(spec), plain_rope(spec.head_dim), 80, 0.6);
}

TEST(NaiveLlama, KeysLeftOutHaveTheirDefaults) {
  TinySpec spec = small();
  spec.heads = spec.kv_heads = 3;  // 48 / 3 is the length of a head
  spec.omit = {"llama.attention.head_count_kv", "llama.attention.key_length",
               "llama.attention.value_length"};
  check(spec);
}

TEST(NaiveLlama, AnUntiedCopyOfTheEmbeddingIsTheSame) {
  TinySpec spec = small();
  spec.tied = true;
  const TinyFile tied(spec);
  const auto embedding = tied.gguf().tensor("token_embd.weight");
  GgufWriter writer = tiny_gguf(spec);
  writer.add_tensor_bytes("output.weight", embedding->dtype, {spec.hidden, spec.vocab},
                          {embedding->data, static_cast<size_t>(embedding->bytes())});
  const TinyFile untied(writer);
  const auto tokens = test::random_tokens(3, 20, spec.vocab);
  Bench a(tied, kernels::best_isa(), 1, 1), b(untied, kernels::best_isa(), 1, 1);
  EXPECT_TRUE(a.read(*a.cache().open(), tokens, 20) == b.read(*b.cache().open(), tokens, 20));
}

TEST(NaiveLlama, RopeOverPartOfTheHead) {
  const TinySpec spec = small();
  GgufWriter writer = tiny_gguf(spec);
  writer.add_u32("llama.rope.dimension_count", 10);
  check(spec, writer, plain_rope(10));
}

TEST(NaiveLlama, RopeWithAnotherBase) {
  const TinySpec spec = small();
  GgufWriter writer = tiny_gguf(spec);
  writer.add_f32("llama.rope.freq_base", 500.0f);
  check(spec, writer,
        {16, [](int pair, int position) { return position * std::pow(500.0, -pair / 8.0); }});
}

TEST(NaiveLlama, RopeScaledLinearly) {
  const TinySpec spec = small();
  const NaiveRope rope = {
      16, [](int pair, int position) { return position / 4.0 * std::pow(10000.0, -pair / 8.0); }};
  GgufWriter writer = tiny_gguf(spec);
  writer.add_string("llama.rope.scaling.type", "linear").add_f32("llama.rope.scaling.factor", 4.0f);
  check(spec, writer, rope);
  // The key's old name, with which the type is implied.
  GgufWriter old = tiny_gguf(spec);
  old.add_f32("llama.rope.scale_linear", 4.0f);
  check(spec, old, rope);
}

TEST(NaiveLlama, RopeWithFactors) {
  const TinySpec spec = small();
  const std::vector<float> factors = {1.0f, 1.0f, 1.5f, 2.0f, 3.0f, 8.0f, 8.0f, 8.0f};
  GgufWriter writer = tiny_gguf(spec);
  writer.add_tensor("rope_freqs.weight", DType::kF32, {8}, factors);
  check(spec, writer, {16, [&](int pair, int position) {
                         return position * std::pow(10000.0, -pair / 8.0) /
                                static_cast<double>(factors[static_cast<size_t>(pair)]);
                       }});
}

// Peng et al. 2023, 2309.00071, section 3.2 and equation 23: wavelengths far shorter than the
// trained context stay, those longer than it are interpolated, with a ramp over pairs in between;
// attention's temperature goes with 0.1 ln s + 1.
TEST(NaiveLlama, RopeWithYarn) {
  const TinySpec spec = small();
  constexpr double kFactor = 4.0, kContext = 64.0;
  constexpr int kDimensions = 16;
  const auto pair_of = [&](double rotations) {
    return kDimensions / 2.0 * std::log(kContext / (rotations * 2.0 * std::numbers::pi)) /
           std::log(10000.0);
  };
  const double low = std::max(std::floor(pair_of(8.0)), 0.0);
  const double high = std::min(std::ceil(pair_of(1.0)), kDimensions - 1.0);
  NaiveRope rope;
  rope.dimensions = kDimensions;
  rope.angle = [&](int pair, int position) {
    const double frequency = std::pow(10000.0, -2.0 * pair / kDimensions);
    const double interpolated = std::min(1.0, std::max(0.0, (pair - low) / (high - low)));
    return position * (frequency * (1.0 - interpolated) + frequency / kFactor * interpolated);
  };
  rope.magnitude = 1.0 + 0.1 * std::log(kFactor);
  GgufWriter writer = tiny_gguf(spec);
  writer.add_string("llama.rope.scaling.type", "yarn")
      .add_f32("llama.rope.scaling.factor", static_cast<float>(kFactor))
      .add_u32("llama.rope.scaling.original_context_length", static_cast<uint32_t>(kContext))
      .add_f32("llama.rope.scaling.yarn_beta_fast", 8.0f);
  check(spec, writer, rope, 200);
}

TEST(NaiveLlama, StatesAreWhatTheHeadReads) {
  const TinySpec spec = small();
  const TinyFile file(spec);
  const auto tokens = test::random_tokens(3, 70, spec.vocab);
  const auto expected = NaiveLlama(file.gguf(), spec, plain_rope(spec.head_dim)).states(tokens);
  for (const kernels::Isa isa : kernels::built_isas()) {
    if (!kernels::isa_supported(isa)) continue;
    Bench bench(file, isa, 1, 1);
    const auto rows = bench.read(*bench.cache().open(), tokens, 16);
    for (size_t p = 0; p < rows.size(); ++p) {
      ASSERT_EQ(rows[p].state.size(), expected[p].size());
      for (size_t i = 0; i < expected[p].size(); ++i) {
        ASSERT_NEAR(rows[p].state[i], expected[p][i], 0.01) << "position " << p << ", number " << i;
      }
    }
  }
}

TEST(NaiveLlama, TapsAreTheResidualStream) {
  const TinySpec spec = small();
  const TinyFile file(spec);
  const auto tokens = test::random_tokens(3, 70, spec.vocab);
  NaiveLlama naive(file.gguf(), spec, plain_rope(spec.head_dim));
  const auto hidden = static_cast<size_t>(spec.hidden);
  const auto embedding = *file.gguf().tensor("token_embd.weight");
  for (const kernels::Isa isa : kernels::built_isas()) {
    if (!kernels::isa_supported(isa)) continue;
    Bench bench(file, isa, 1, 1);
    const auto rows = bench.read(*bench.cache().open(), tokens, 16);
    for (size_t p = 0; p < rows.size(); ++p) {
      ASSERT_EQ(rows[p].taps.size(), 3 * hidden);
      // What enters layer 0 is the embedding.
      std::vector<float> row(hidden);
      dequantize(embedding.dtype, embedding.row(tokens[p]), spec.hidden, row.data());
      ASSERT_TRUE(std::equal(row.begin(), row.end(), rows[p].taps.begin()));
      // What leaves the last layer gives the logits.
      const std::vector<double> last(rows[p].taps.end() - spec.hidden, rows[p].taps.end());
      const std::vector<double> logits = naive.head(last);
      for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(rows[p].logits[i], logits[i], 1e-4);
    }
  }
}

}  // namespace aerie::naive_llama_test

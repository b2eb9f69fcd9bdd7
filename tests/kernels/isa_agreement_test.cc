// The instruction sets agree bit for bit. The contract does not promise it, but the lanes are
// written so that they do: who changes that should know.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/kernels/attention_testing.h"
#include "tests/kernels/matmul_testing.h"

namespace aerie::kernels {
namespace {

template <typename Base>
class AgreementTest : public Base {
 protected:
  void SetUp() override {
    for (const Isa isa : kVectorIsas) {
      if (!isa_supported(isa)) GTEST_SKIP() << "this processor lacks " << isa_name(isa);
    }
  }
  const Backend& avx2() const { return *backend(Isa::kAvx2); }
  const Backend& avx512() const { return *backend(Isa::kAvx512); }
};

void expect_same(const Activations& a, const Activations& b) {
  EXPECT_TRUE(same_bits(a.floats.as<float>(), b.floats.as<float>()));
  EXPECT_TRUE(std::ranges::equal(a.codes.as<int8_t>(), b.codes.as<int8_t>()));
  EXPECT_TRUE(same_bits(a.scales.as<float>(), b.scales.as<float>()));
  EXPECT_TRUE(std::ranges::equal(a.sums.as<int32_t>(), b.sums.as<int32_t>()));
  EXPECT_TRUE(same_bits(a.scaled_sums.as<float>(), b.scaled_sums.as<float>()));
}

using MatmulAgreementTest = AgreementTest<testing::TestWithParam<DType>>;

TEST_P(MatmulAgreementTest, PanelsAndProducts) {
  Random random(15);
  for (const int64_t k : lengths_for(GetParam())) {
    const Weights w = random_weights(GetParam(), 41, k, random);
    const PackedMatrix a = pack(avx2(), w), b = pack(avx512(), w);
    ASSERT_EQ(a.data.size(), b.data.size());
    EXPECT_EQ(std::memcmp(a.data.data(), b.data.data(), a.data.size()), 0);
    const Activations all = random_activations(64, k, avx2().wants_int8(GetParam()), random);
    for (int64_t rows = 1; rows <= 64; ++rows) {
      const Activations x = first_rows(all, rows);
      EXPECT_TRUE(same_bits(product(avx2(), 1, a, x), product(avx512(), 1, b, x)))
          << "k " << k << " rows " << rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatmulAgreementTest, testing::ValuesIn(kAllDTypes), dtype_test_name);

using AgreementOfTest = AgreementTest<testing::Test>;

TEST_F(AgreementOfTest, RowOperations) {
  Random random(16);
  for (const int exponent : {-130, -20, -12, 0, 3, 20, 120}) {
    const int64_t k = 320, rows = 5;
    std::vector<float> values = uniform_floats(random, rows * k, -1.0f, 1.0f);
    for (float& x : values) x = std::ldexp(x, exponent);
    const std::vector<float> weight = uniform_floats(random, k, -1.0f, 1.0f);
    const std::vector<float> up = uniform_floats(random, rows * k, -1.0f, 1.0f);
    const auto run = [&](const Backend& on, const auto& operation) {
      Activations x = activations_of(on, values, k, true);
      operation(on, x);
      return x;
    };
    const auto compare = [&](const auto& operation) {
      expect_same(run(avx2(), operation), run(avx512(), operation));
    };
    SCOPED_TRACE(testing::Message() << "values of 2^" << exponent);
    compare([](const Backend&, Activations&) {});
    compare([&](const Backend& on, Activations& x) {
      on.rms_norm(pool_of(1), values.data(), k, weight.data(), 1e-5, x);
    });
    compare([&](const Backend& on, Activations& x) {
      on.layer_norm(pool_of(1), values.data(), k, weight.data(), up.data(), 1e-5, x);
    });
    compare([&](const Backend& on, Activations& x) {
      on.rms_norm_heads(pool_of(1), x.row(0), rows, 5, 64, weight.data(), 1e-5);
    });
    compare([&](const Backend& on, Activations& x) {
      on.add_rms_norm(pool_of(1), up.data(), rows, k, weight.data(), 1e-5, x.row(0));
    });
    for (const Activation activation :
         {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu}) {
      compare([&](const Backend& on, Activations& x) {
        on.gated(pool_of(1), activation, values.data(), up.data(), x);
      });
      compare([&](const Backend& on, Activations& x) {
        on.activate(pool_of(1), activation, values.data(), x);
      });
    }
    compare([&](const Backend& on, Activations& x) {
      on.soft_cap(pool_of(1), x.row(0), rows * k, 30.0f);
    });
    for (const RopeStyle style : {RopeStyle::kPairs, RopeStyle::kHalves}) {
      compare([&](const Backend& on, Activations& x) {
        on.rope(pool_of(1), x.row(0), rows, 5, 64, 64, style, up.data(), values.data());
      });
    }
  }
}

TEST_F(AgreementOfTest, Attention) {
  Random random(17);
  for (const AttentionShape& shape : {AttentionShape{6, 2, 64},
                                      {32, 1, 80},
                                      {3, 3, 128},
                                      {4, 2, 96, 90},
                                      {4, 1, 256, 300, 50.0f}}) {
    for (const int length : {1, 40, 257, 600}) {
      const std::vector<Token> chain = random_tokens(random, length);
      for (const KvType type : kAllKvTypes) {
        EXPECT_TRUE(same_bits(attend_alone(avx2(), shape.with(type), chain),
                              attend_alone(avx512(), shape.with(type), chain)))
            << length;
      }
    }
  }
}

}  // namespace
}  // namespace aerie::kernels

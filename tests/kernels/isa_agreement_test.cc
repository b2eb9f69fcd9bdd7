// The instruction sets agree bit for bit. The contract does not promise it, but the lanes are
// written so that they do: who changes that should know.
#include <numeric>

#include "tests/kernels/isa_results.h"
#include "tests/kernels/kernel_testing.h"

namespace aerie::kernels::isa_agreement_test {

template <typename Base>
class AgreementTest : public Base {
 protected:
  void SetUp() override {
    for (const Isa isa : kVectorIsas) {
      if (isa_supported(isa)) backends_.push_back(backend(isa));
    }
    if (backends_.size() < 2) GTEST_SKIP() << "this processor has no two instruction sets";
  }

  // `visit_all(backend, visitor)` visits the same results in the same order for every backend.
  template <typename VisitAll>
  void expect_agreement(const VisitAll& visit_all) const {
    std::vector<std::vector<float>> expected;
    visit_all(*backends_[0], [&](const std::string&, std::span<const float> values) {
      expected.emplace_back(values.begin(), values.end());
    });
    ASSERT_FALSE(expected.empty());
    for (size_t i = 1; i < backends_.size(); ++i) {
      size_t visited = 0;
      visit_all(*backends_[i], [&](const std::string& name, std::span<const float> values) {
        EXPECT_TRUE(same_bits(expected.at(visited++), values))
            << name << ", " << isa_name(backends_[i]->isa());
      });
      EXPECT_EQ(visited, expected.size());
    }
  }

 private:
  std::vector<const Backend*> backends_;
};

using MatmulAgreementTest = AgreementTest<testing::TestWithParam<DType>>;

TEST_P(MatmulAgreementTest, PanelsAndProducts) {
  std::vector<int64_t> row_counts(64);
  std::iota(row_counts.begin(), row_counts.end(), 1);
  expect_agreement([&](const Backend& on, const ResultVisitor& visit) {
    visit_products(on, GetParam(), row_counts, visit);
  });
}

INSTANTIATE_TEST_SUITE_P(All, MatmulAgreementTest, testing::ValuesIn(kAllDTypes), dtype_test_name);

using AgreementOfTest = AgreementTest<testing::Test>;

TEST_F(AgreementOfTest, RowOperations) {
  expect_agreement(visit_row_operations);
}

TEST_F(AgreementOfTest, Attention) {
  expect_agreement(visit_attention);
}

TEST_F(AgreementOfTest, LongKeys) {
  expect_agreement(visit_long_keys);
}

TEST_F(AgreementOfTest, LinearAttention) {
  expect_agreement(visit_linear_attention);
}

}  // namespace aerie::kernels::isa_agreement_test

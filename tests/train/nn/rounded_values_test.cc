// Matrices rounded while they are trained have the values that the engine converts them to.
#include "train/nn/rounded_values.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tensor/blocks.h"
#include "tensor/quantize.h"

namespace aerie::train::rounded_values_test {

at::Tensor random(at::IntArrayRef shape, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator);
}

at::Tensor converted(const at::Tensor& matrix, DType type) {
  std::vector<uint8_t> stored(static_cast<size_t>(dtype_bytes(type, matrix.numel())));
  quantize(type, matrix.data_ptr<float>(), matrix.numel(), stored.data());
  at::Tensor values = at::empty(matrix.sizes(), at::kFloat);
  dequantize(type, stored.data(), matrix.numel(), values.data_ptr<float>());
  return values;
}

TEST(RoundedValues, AreThoseThatTheEngineConvertsTo) {
  at::Tensor matrix = random({40, 96}, 3);
  matrix[1].zero_();
  matrix[2].mul_(1e-30);  // whose scale is none in 16 bits
  matrix[3].mul_(1e3);
  matrix[4].fill_(-0.25);
  matrix[5].copy_(at::arange(96) - 48);
  for (const DType type : {DType::kQ4_0, DType::kQ8_0}) {
    EXPECT_TRUE(at::equal(rounded(matrix, type), converted(matrix, type))) << dtype_info(type).name;
  }
}

TEST(RoundedValues, HoldWhileTheyExistForMatricesOfWholeBlocks) {
  Parameters parameters;
  const at::Tensor matrix = parameters.add("matrix", random({8, 64}, 1));
  const at::Tensor odd = parameters.add("odd", random({8, 40}, 2));
  const at::Tensor vector = parameters.add("vector", random({64}, 3));
  std::vector<at::Tensor> before;
  for (const Parameter& parameter : parameters.list()) {
    before.push_back(parameter.value.detach().clone());
  }
  {
    const RoundedValues rounding(parameters, DType::kQ4_0);
    EXPECT_TRUE(at::equal(matrix, rounded(before[0], DType::kQ4_0)));
    EXPECT_FALSE(at::equal(matrix, before[0]));
    EXPECT_TRUE(at::equal(odd, before[1]));
    EXPECT_TRUE(at::equal(vector, before[2]));
    // The gradient is that of the rounded matrix, for the one behind it.
    at::linear(at::ones({1, 64}), matrix).square().sum().backward();
  }
  EXPECT_TRUE(at::equal(matrix, before[0]));
  EXPECT_TRUE(matrix.is_leaf() && matrix.requires_grad());
  const at::Tensor sums = rounded(before[0], DType::kQ4_0).sum(1, true);
  EXPECT_TRUE(at::allclose(matrix.grad(), (2.0 * sums).expand({8, 64})));
}

TEST(RoundedValues, OtherTypesAreRefused) {
  EXPECT_EQ(*parse_rounding("q8_0"), DType::kQ8_0);
  for (const char* name : {"q4_k", "bf16", "nothing"}) {
    const Status status = parse_rounding(name).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::HasSubstr(name));
  }
}

}  // namespace aerie::train::rounded_values_test

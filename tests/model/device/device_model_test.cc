// A model on a device gives what the reference gives, within what its roundings allow; and a row's
// bits depend on its inputs and on what it sees alone, however the pass is made up.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "kernels/device/open_device.h"
#include "kernels/device/pack.h"
#include "tests/model/batches.h"

namespace aerie::device_model_test {

device::Device& device_of_tests() {
  static const std::unique_ptr<device::Device> device = [] {
    const char* name = std::getenv("AERIE_TEST_DEVICE");
    auto opened = device::open(name != nullptr ? name : "emulated");
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(opened).value();
  }();
  return *device;
}

class DeviceModel : public testing::TestWithParam<DType> {
 protected:
  static const ModelFile& file() { return file_of(GetParam()).gguf(); }
  static std::vector<int32_t> tokens(int count) {
    return test::random_tokens(7, count, vocab_of_files());
  }
  static std::vector<RowOutputs> in_chunks(std::span<const int32_t> tokens, int chunk) {
    Bench bench(file(), device_of_tests(), 1);
    return bench.read(*bench.cache().open(), tokens, chunk);
  }
};

// Largest difference over the root of the mean square of what is expected.
double difference(std::span<const float> actual, std::span<const float> expected) {
  double worst = 0.0, squares = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(actual[i])) return INFINITY;
    worst = std::max(worst, std::abs(double{actual[i]} - expected[i]));
    squares += double{expected[i]} * expected[i];
  }
  return worst / std::sqrt(squares / static_cast<double>(expected.size()));
}

TEST_P(DeviceModel, GivesWhatTheReferenceGives) {
  const std::vector<int32_t> text = tokens(40);
  Bench reference(file(), kernels::Isa::kReference, 1, 1);
  const auto expected = reference.read(*reference.cache().open(), text, 40);
  const auto actual = in_chunks(text, 40);
  ASSERT_EQ(actual.size(), expected.size());
  double logits = 0.0, taps = 0.0, states = 0.0;
  for (size_t r = 0; r < expected.size(); ++r) {
    logits = std::max(logits, difference(actual[r].logits, expected[r].logits));
    taps = std::max(taps, difference(actual[r].taps, expected[r].taps));
    states = std::max(states, difference(actual[r].state, expected[r].state));
  }
  // bfloat16's rounding is 2^-9; it adds up over layers.
  EXPECT_LT(logits, 0.06);
  EXPECT_LT(taps, 0.06);
  EXPECT_LT(states, 0.06);
  RecordProperty("worst", std::to_string(logits));
}

TEST_P(DeviceModel, HoweverThePromptIsCut) {
  const std::vector<int32_t> text = tokens(70);
  const auto expected = in_chunks(text, 1);
  for (const int chunk : {3, 8, 9, 20, 40, 64, 70}) {
    const auto actual = in_chunks(text, chunk);
    for (size_t r = 0; r < expected.size(); ++r) {
      ASSERT_TRUE(actual[r] == expected[r]) << "chunks of " << chunk << ", row " << r;
    }
  }
}

// One for each layout of weights, and one that is neither.
INSTANTIATE_TEST_SUITE_P(Types, DeviceModel,
                         testing::Values(DType::kQ4_0, DType::kQ8_0, DType::kBF16, DType::kF32,
                                         DType::kQ4_K, DType::kQ6_K, DType::kQ5_0),
                         [](const auto& param) {
                           return std::string(dtype_info(param.param).name);
                         });

}  // namespace aerie::device_model_test

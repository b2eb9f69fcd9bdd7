// What rounding activations to 8 bits costs with weights of each format: perplexity and divergence
// against products in floats of the same weights.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/gguf/gguf.h"
#include "format/gguf/gguf_types.h"
#include "kernels/backend.h"
#include "tests/format/gguf/test_quantize.h"
#include "tests/model/text_runner.h"
#include "tests/testing/nightly.h"

namespace aerie::format_accuracy_test {

using test::TextRunner;

constexpr size_t kWindowsByDay = 2;
constexpr const char* kModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

// The model with all matrices requantised, where the blocks divide a row: as they are stored then,
// or as the floats that they stand for.
class Requantized final : public ModelFile {
 public:
  Requantized(const ModelFile& file, DType type, bool as_floats)
      : ModelFile(file.name()), file_(file), type_(type), as_floats_(as_floats) {
    std::vector<TensorInfo> tensors(file.tensors().begin(), file.tensors().end());
    for (TensorInfo& tensor : tensors) {
      if (!is_matrix(tensor)) continue;
      converted_ += requantizes(tensor) ? 1 : 0;
      const DType stored = requantizes(tensor) ? type : *tensor.dtype;
      const GgmlType& ggml = ggml_type_of(as_floats ? DType::kF32 : stored);
      tensor.dtype = as_floats ? DType::kF32 : stored;
      tensor.type_name = ggml.name;
      tensor.type_id = ggml.id;
      tensor.bytes = dtype_bytes(*tensor.dtype, tensor.elements());
    }
    set_contents({file.metadata().begin(), file.metadata().end()}, std::move(tensors));
  }

  std::string format() const override { return "requantised"; }
  int64_t file_bytes() const override { return file_.file_bytes(); }
  int converted() const { return converted_; }

 private:
  static bool is_matrix(const TensorInfo& tensor) {
    return tensor.dtype.has_value() && tensor.elements() > tensor.shape[0];
  }
  bool requantizes(const TensorInfo& tensor) const {
    return tensor.shape[0] % dtype_info(type_).block_elements == 0;
  }

  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override {
    AERIE_ASSIGN_OR_RETURN(TensorData source, file_.read(tensor.name));
    if (!is_matrix(tensor)) return source;
    std::vector<float> floats(static_cast<size_t>(tensor.elements()));
    dequantize(source.view.dtype, source.view.data, tensor.elements(), floats.data());
    std::vector<std::byte> bytes;
    if (requantizes(tensor)) {
      bytes = test::quantize(type_, floats);
      dequantize(type_, bytes.data(), tensor.elements(), floats.data());
    } else if (!as_floats_) {
      return source;
    }
    if (as_floats_) {
      const std::span<const std::byte> raw = std::as_bytes(std::span(floats));
      bytes.assign(raw.begin(), raw.end());
    }
    TensorData made;
    AERIE_ASSIGN_OR_RETURN(made.owned, Buffer::allocate(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), made.owned.data());
    made.view = {*tensor.dtype, Device::kCpu, tensor.shape, made.owned.data()};
    return made;
  }

  const ModelFile& file_;
  DType type_;
  bool as_floats_;
  int converted_ = 0;
};

class FormatAccuracy : public testing::TestWithParam<DType> {};

TEST_P(FormatAccuracy, PerplexityIsThatOfFloats) {
  if (!std::ifstream(kModel).good()) {
    GTEST_SKIP() << kModel << " is missing: run scripts/fetch_model.sh";
  }
  if (kernels::best_isa() == kernels::Isa::kReference) GTEST_SKIP() << "no vector instructions";
  auto file = GgufFile::open(kModel);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const Requantized stored(**file, GetParam(), false), floats(**file, GetParam(), true);
  ASSERT_GT(stored.converted(), 0);
  std::vector<test::Window> windows = test::read_golden("tests/golden/smollm2-fidelity.bin");
  if (!test::nightly()) windows.resize(kWindowsByDay);
  TextRunner fast(stored, kernels::best_isa()), exact(floats, kernels::best_isa());
  const test::Difference d = test::difference(exact, fast, windows);
  const double ratio = d.perplexity() / d.yardstick_perplexity();
  std::printf(
      "%s: perplexity %.4f against %.4f in floats (%+.3f %%, standard error %.3f %%), "
      "mean KL %.6f\n",
      std::string(dtype_info(GetParam()).name).c_str(), d.perplexity(), d.yardstick_perplexity(),
      100.0 * (ratio - 1.0), 100.0 * d.standard_error(), d.mean());
  ASSERT_EQ(d.positions, 500 * static_cast<int>(windows.size()));
  // So many positions tell no more than that.
  EXPECT_NEAR(ratio, 1.0, 0.003 + d.standard_error());
  EXPECT_LT(d.mean(), 0.006);
}

std::string type_name(const testing::TestParamInfo<DType>& tested) {
  return std::string(dtype_info(tested.param).name);
}

// One of each kind of kernel; the others take minutes.
std::vector<DType> formats() {
  if (std::getenv("AERIE_ALL_FORMATS") == nullptr) {
    return {DType::kBF16, DType::kQ4_0, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K};
  }
  return {DType::kF16,    DType::kBF16,   DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
          DType::kQ5_1,   DType::kQ8_0,   DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
          DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};
}

INSTANTIATE_TEST_SUITE_P(Formats, FormatAccuracy, testing::ValuesIn(formats()), type_name);

}  // namespace aerie::format_accuracy_test

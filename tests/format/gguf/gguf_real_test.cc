// A real model's file, if it is there.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "format/gguf/gguf.h"
#include "format/gguf/gguf_write.h"
#include "format/mapped_file.h"

namespace aerie::gguf_real_test {

constexpr const char* kPath = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

class RealGguf : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kPath)) GTEST_SKIP() << kPath << " is absent";
    auto opened = GgufFile::open(kPath);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    file_ = std::move(opened).value();
  }
  std::unique_ptr<GgufFile> file_;
};

TEST_F(RealGguf, Metadata) {
  EXPECT_EQ(file_->metadata().size(), 33u);
  EXPECT_EQ(*file_->string("general.architecture"), "llama");
  EXPECT_EQ(*file_->integer("llama.block_count"), 30);
  EXPECT_EQ(*file_->integer("llama.embedding_length"), 576);
  EXPECT_EQ(*file_->integer("llama.attention.head_count"), 9);
  EXPECT_EQ(*file_->integer("llama.attention.head_count_kv"), 3);
  EXPECT_NEAR(*file_->number("llama.attention.layer_norm_rms_epsilon"), 1e-5, 1e-9);
  EXPECT_EQ(file_->strings("tokenizer.ggml.tokens")->size(), 49152u);
  EXPECT_EQ(file_->numbers("tokenizer.ggml.token_type")->size(), 49152u);
}

TEST_F(RealGguf, TensorsHoldPlausibleWeights) {
  EXPECT_EQ(file_->tensors().size(), 272u);
  int64_t elements = 0;
  for (const TensorInfo& tensor : file_->tensors()) {
    ASSERT_TRUE(tensor.dtype.has_value()) << tensor.name << " " << tensor.type_name;
    const TensorView view = file_->tensor(tensor.name).value();
    elements += view.elements();
    std::vector<float> row(static_cast<size_t>(view.row_length()));
    dequantize(view.dtype, view.row(view.rows() - 1), view.row_length(), row.data());
    double sum = 0.0;
    for (const float value : row) sum += std::fabs(double{value});
    ASSERT_GT(sum, 0.0) << tensor.name;
    ASSERT_LT(sum / static_cast<double>(row.size()), 100.0) << tensor.name;
    file_->release(view);
  }
  EXPECT_EQ(elements, 134515008);
  EXPECT_EQ(file_->tensor("token_embd.weight")->shape, (Shape{576, 49152, 1, 1}));
}

// Written anew, the file is the same, byte by byte.
class RealGgufFiles : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, RealGgufFiles,
                         ::testing::Values(kPath, "models/gemma-3-270m-q4_k_m.gguf"));

TEST_P(RealGgufFiles, WrittenAnew) {
  if (!std::filesystem::exists(GetParam())) GTEST_SKIP() << GetParam() << " is absent";
  const auto file = GgufFile::open(GetParam());
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::string path = "/tmp/aerie_real_" + std::to_string(getpid()) + ".gguf";
  const Status status = write_gguf(**file, path);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto before = MappedFile::open(GetParam()), after = MappedFile::open(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(before.ok() && after.ok());
  ASSERT_EQ(after->bytes().size(), before->bytes().size());
  EXPECT_EQ(std::memcmp(after->bytes().data(), before->bytes().data(), after->bytes().size()), 0);
}

}  // namespace aerie::gguf_real_test

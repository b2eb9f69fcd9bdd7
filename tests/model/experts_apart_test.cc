// Files of before mid-2024, which have a tensor for each expert's matrix.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/model/batches.h"
#include "tests/model/changed_file.h"
#include "tests/model/families/family_goldens.h"

namespace aerie::experts_apart_test {

using testing::HasSubstr;

constexpr const char* kFamily = "mixtral";

void take_apart(const ModelFile& file, ChangedFile& changed) {
  const ModelConfig config = *read_model_config(file);
  for (int i = 0; i < config.layers; ++i) {
    for (const char* part : {"ffn_gate", "ffn_up", "ffn_down"}) {
      const std::string stack = fmt::format("blk.{}.{}_exps.weight", i, part);
      const TensorData tensor = *file.read(stack);
      const Shape& shape = tensor.view.shape;
      const auto count = static_cast<size_t>(shape[0] * shape[1]);
      for (int64_t e = 0; e < shape[2]; ++e) {
        std::vector<float> values(count);
        std::memcpy(values.data(),
                    tensor.view.data + static_cast<size_t>(e) * count * sizeof(float),
                    count * sizeof(float));
        changed.with_tensor(fmt::format("blk.{}.{}.{}.weight", i, part, e), shape[0],
                            std::move(values));
      }
      changed.without_tensor(stack);
    }
  }
  changed.done();
}

std::vector<std::vector<float>> logits_of(const ModelFile& file) {
  const FamilyGolden golden = read_family_golden(kFamily);
  Bench bench(file, kernels::best_isa(), 1, 1);
  std::vector<std::vector<float>> logits;
  for (const auto& row : bench.read(*bench.cache().open(), golden.sequences[0].tokens, 64)) {
    logits.push_back(row.logits);
  }
  return logits;
}

TEST(ExpertsApart, AreTheSameModel) {
  const auto file = open_family_model(kFamily);
  ASSERT_NE(file, nullptr);
  ChangedFile apart(*file);
  take_apart(*file, apart);
  EXPECT_EQ(logits_of(apart), logits_of(*file));
}

TEST(ExpertsApart, MustBeAllThereAndNoMore) {
  const auto file = open_family_model(kFamily);
  ASSERT_NE(file, nullptr);
  ChangedFile apart(*file);
  take_apart(*file, apart);
  const ModelFile& base = apart;
  ChangedFile less(base), more(base);
  less.without_tensor("blk.1.ffn_up.2.weight");
  const Status missing = load_model(less.done(), test::model_options()).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("blk.1.ffn_up.2.weight"));
  const int experts = read_model_config(*file)->experts;
  const std::string extra = fmt::format("blk.0.ffn_up.{}.weight", experts);
  more.with_tensor(extra, 16, std::vector<float>(32));
  const Status unused = load_model(more.done(), test::model_options()).status();
  EXPECT_EQ(unused.code(), StatusCode::kUnsupported);
  EXPECT_THAT(unused.message(), HasSubstr(extra));
}

}  // namespace aerie::experts_apart_test

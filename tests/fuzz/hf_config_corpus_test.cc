#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/import/hugging_face_import.h"
#include "model/registry.h"
#include "tests/fuzz/corpus.h"

int fuzz_hf_config(const uint8_t* data, size_t size);

namespace aerie::hf_config_corpus_test {

// Whether a family that names the model_type takes the configuration.
bool is_taken(const std::string& path) {
  auto json = read_json(path);
  if (!json.ok()) return false;
  auto import = HuggingFaceImport::create(*std::move(json), path);
  if (!import.ok()) return false;
  const auto type = import->whole_config().string("model_type");
  for (const ModelFamily* family : model_families()) {
    for (const std::string_view candidate : family->model_types) {
      if (type.ok() && candidate == *type) return family->import(*import).ok();
    }
  }
  return false;
}

TEST(HfConfigCorpus, EverySeed) {
  const test::SeedCount seeds =
      test::run_seeds(fuzz_hf_config, "tests/fuzz/corpus/hf_config", is_taken);
  EXPECT_GE(seeds.valid, 15);
  EXPECT_GE(seeds.all - seeds.valid, 3);
}

// The configurations of the tiny models are seeds as well.
TEST(HfConfigCorpus, EveryTinyModel) {
  int taken = 0;
  for (const auto& folder : std::filesystem::directory_iterator("tests/golden/families")) {
    if (!folder.is_directory()) continue;
    const test::SeedCount seeds = test::run_seeds(fuzz_hf_config, folder.path(), is_taken);
    EXPECT_GE(seeds.valid, 1) << folder.path();
    taken += seeds.valid;
  }
  EXPECT_GE(taken, 50);
}

}  // namespace aerie::hf_config_corpus_test

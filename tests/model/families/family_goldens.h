// The tiny models of tests/golden/families/ and what was recorded for them; see the README there.
#pragma once

#include <gtest/gtest.h>
#include <cstdint>

#include <memory>
#include <string>
#include <vector>

#include "format/model_file.h"

namespace aerie {

// "llama", "gemma3", ...: every folder there, in alphabetical order.
std::vector<std::string> family_models();

// For suites that run over them.
std::string family_test_name(const testing::TestParamInfo<std::string>& info);

// Fails the test if it cannot be opened.
std::unique_ptr<ModelFile> open_family_model(const std::string& name);

struct FamilyGolden {
  struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<std::vector<float>> logits;  // after each token
  };
  int vocab = 0;
  std::vector<Sequence> sequences;
};
FamilyGolden read_family_golden(const std::string& name);

}  // namespace aerie

#include "draft/draft_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "format/safetensors_write.h"
#include "format/torch_folder.h"

namespace aerie {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DraftVocabulary : public ::testing::Test {
 protected:
  DraftVocabulary() : path_(testing::TempDir() + "/aerie_vocabulary_" + std::to_string(getpid())) {}
  ~DraftVocabulary() override { std::filesystem::remove(path_); }

  Expected<std::vector<int32_t>> read(const std::string& text, int size, int vocab = 100) {
    std::ofstream(path_, std::ios::binary) << text;
    return read_draft_vocabulary(path_, size, vocab);
  }
  void expect_refused(const std::string& text, StatusCode code, const std::string& part,
                      int size = 0) {
    const auto ids = read(text, size);
    EXPECT_EQ(ids.status().code(), code) << ids.status().message();
    EXPECT_THAT(ids.status().message(), HasSubstr(path_ + ": " + part));
  }

  std::string path_;
};

TEST_F(DraftVocabulary, LinesAndArrays) {
  for (const char* text :
       {"7\n3\n99\n0\n5\n", "7\r\n 3\n\n99\n0\n\t5", "[7, 3, 99, 0, 5]", "\n [7,\n3,99,0,5]\n"}) {
    EXPECT_THAT(*read(text, 3), ElementsAre(3, 7, 99)) << text;
    EXPECT_THAT(*read(text, 0), ElementsAre(0, 3, 5, 7, 99)) << text;
    EXPECT_THAT(*read(text, 5), ElementsAre(0, 3, 5, 7, 99)) << text;
  }
}

TEST_F(DraftVocabulary, Tensors) {
  // What torch.save() wrote of the list [0, 3, 260, 70000, 2, 1].
  const std::string list = "tests/fuzz/corpus/torch/ids.pt", to = path_ + ".safetensors";
  ASSERT_TRUE(convert_torch(list, to).ok());
  EXPECT_THAT(*read_draft_vocabulary(to, 4, 128'000), ElementsAre(0, 3, 260, 70000));
  const auto beyond = read_draft_vocabulary(to, 4, 70'000);
  EXPECT_EQ(beyond.status().code(), StatusCode::kInvalidData);
  EXPECT_THAT(beyond.status().message(),
              HasSubstr("element 3: 70000 is not a token of the target, which has ids 0 to 69999"));
  ASSERT_TRUE(convert_torch("tests/fuzz/corpus/torch/types.pt", to).ok());
  EXPECT_THAT(read_draft_vocabulary(to, 4, 100).status().message(), HasSubstr("has 15 tensors"));
  const std::vector<SafetensorsEntry> floats = {{"a", SafetensorsType::kF32, {0}}};
  const auto nothing = [](size_t, const ByteSink&) { return Status(); };
  ASSERT_TRUE(write_safetensors(to, floats, {}, nothing).ok());
  EXPECT_EQ(read_draft_vocabulary(to, 4, 100).status().code(), StatusCode::kUnsupported);
  std::filesystem::remove(to);

  const auto raw = read_draft_vocabulary(list, 4, 128'000);
  EXPECT_EQ(raw.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(raw.status().message(), HasSubstr("aerie inspect " + list + " --convert " + list));
}

TEST_F(DraftVocabulary, Refusals) {
  constexpr auto kBroken = StatusCode::kInvalidData, kWrong = StatusCode::kInvalidArgument;
  expect_refused("1\n100\n", kBroken, "line 2: 100 is not a token of the target");
  expect_refused("1\n-1\n", kBroken, "line 2: -1 is not a token");
  expect_refused("1\n2\n1\n", kBroken, "line 3: the id 1 is there twice");
  expect_refused("1\n\n2 3\n", kBroken, "line 3: '2 3' is not a token id");
  expect_refused("1\n99999999999999999999\n", kBroken, "line 2: '99999999999999999999'");
  expect_refused("\x1b[31m", kBroken, "line 1: '\\x1b[31m' is not");
  expect_refused("[1, 2.5]", kBroken, "element 1: is a number; a token id is wanted");
  expect_refused("[1, \"2\"]", kBroken, "element 1: is a string");
  expect_refused("[18446744073709551615]", kBroken, "element 0: -1 is not");
  expect_refused("[1, 1]", kBroken, "element 1: the id 1 is there twice");
  expect_refused("[1", kBroken, "line 1");
  expect_refused("{\"ids\": [1]}", kBroken, "line 1: '{\"ids\": [1]}' is not a token id");
  expect_refused("", kWrong, "holds 0 token ids, and some are asked for");
  expect_refused("[]", kWrong, "holds 0 token ids, and 3 are asked for", 3);
  expect_refused("1\n2\n", kWrong, "holds 2 token ids, and 3 are asked for", 3);
  EXPECT_EQ(read("1", -1).status().code(), kWrong);
  EXPECT_EQ(read_draft_vocabulary(path_ + "none", 1, 100).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace aerie

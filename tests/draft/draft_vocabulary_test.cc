#include "draft/network/draft_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "format/gguf/gguf.h"
#include "format/safetensors/safetensors_write.h"
#include "format/torch/torch_folder.h"
#include "model/import/hugging_face_file.h"
#include "tests/format/gguf/gguf_writer.h"

namespace aerie::draft_vocabulary_test {

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

// A draft model's file that says which of the target's tokens its rows stand for.
class DraftIds : public ::testing::Test {
 protected:
  template <typename T>
  static Expected<std::vector<int32_t>> read(const std::vector<T>& d2t, int vocab = 10,
                                             int target_vocab = 100, int64_t made_for = 100) {
    test::GgufWriter writer;
    writer.add_array(kDraftIdsKey, d2t).add_u32(kDraftTargetKey, static_cast<uint32_t>(made_for));
    const std::vector<std::byte> bytes = writer.bytes();
    const auto file = GgufFile::parse(bytes, "draft.gguf").value();
    return read_draft_ids(*file, vocab, target_vocab);
  }
  template <typename T>
  static void expect_refused(const std::vector<T>& d2t, StatusCode code, const std::string& part,
                             int target_vocab = 100) {
    const auto ids = read(d2t, 10, target_vocab);
    EXPECT_EQ(ids.status().code(), code) << ids.status().message();
    EXPECT_THAT(ids.status().message(), testing::AllOf(HasSubstr("draft.gguf"), HasSubstr(part)));
  }
};

TEST_F(DraftIds, OffsetsAndIds) {
  EXPECT_THAT(*read(std::vector<int32_t>{0, 0, 5, 90}), ElementsAre(0, 1, 7, 93));
  EXPECT_THAT(*read(std::vector<uint32_t>{0, 0, 5, 90}), ElementsAre(0, 1, 7, 93));
  EXPECT_THAT(*read(std::vector<int32_t>{7, 8, 99}), ElementsAre(7, 8, 99));
  EXPECT_EQ(read(std::vector<int32_t>(10))->size(), 10u);
}

TEST_F(DraftIds, RefusesNonsense) {
  constexpr auto kBad = StatusCode::kInvalidData;
  expect_refused(std::vector<int32_t>{}, kBad, "0 ids for 10 rows");
  expect_refused(std::vector<int32_t>(11), kBad, "11 ids for 10 rows");
  expect_refused(std::vector<int32_t>{7, 3}, kBad, "neither ascending ids");
  expect_refused(std::vector<int32_t>{-1, 3}, kBad, "neither ascending ids");
  expect_refused(std::vector<int32_t>{3, 100}, kBad, "neither ascending ids");
  expect_refused(std::vector<int64_t>{3, int64_t{1} << 40}, kBad, "is no id");
  expect_refused(std::vector<double>{0.0, 0.5}, kBad, "0.5 is no id");
  expect_refused(std::vector<double>{0.0, NAN}, kBad, "nan is no id");
  expect_refused(std::vector<std::string>{"a"}, kBad, kDraftIdsKey);
  expect_refused(std::vector<int32_t>{0, 1}, StatusCode::kInvalidArgument,
                 "is 100, and the target has 90 tokens", 90);
}

}  // namespace aerie::draft_vocabulary_test

// data.json: there and back, and what keeps samples of other settings out of a folder.

#include "train/data/info.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "tests/train/data/data_folder.h"

namespace aerie::train::info_test {

using testing::HasSubstr;

DataInfo make() {
  DataInfo info;
  info.model = "a \"model\"";
  info.fingerprint = "00ff00ff00ff00ff";
  info.vocab = 300;
  info.chat = "<user>{prompt}\n";
  info.context = 512;
  info.settings.max_tokens = 32;
  info.settings.temperatures = {0.0, 0.7};
  info.settings.seed = std::numeric_limits<uint64_t>::max();
  info.held_out = 0.1;
  info.prompts = {{"a.jsonl", 10, 1, false}, {"b.jsonl", 20, 0xffffffffffffffff, true}};
  return info;
}

struct Change {
  const char* named;  // in the difference
  std::function<void(DataInfo&)> make;
};

std::vector<Change> changes() {
  return {
      {"model", [](DataInfo& i) { i.model = "another model"; }},
      {"model fingerprint", [](DataInfo& i) { i.fingerprint.clear(); }},
      {"vocabulary 300 there, 301 now", [](DataInfo& i) { i.vocab = 301; }},
      {"chat template", [](DataInfo& i) { i.chat.clear(); }},
      {"--context 512 there, 513 now", [](DataInfo& i) { i.context = 513; }},
      {"--max-tokens 32", [](DataInfo& i) { i.settings.max_tokens = 33; }},
      {"--temperature 0,0.7 there, 0.7,0 now",
       [](DataInfo& i) {
         i.settings.temperatures = {0.7, 0.0};
       }},
      {"--seed", [](DataInfo& i) { i.settings.seed = 0; }},
      {"--held-out 0.1 there, 0.2 now", [](DataInfo& i) { i.held_out = 0.2; }},
      {"file 1 of --prompts", [](DataInfo& i) { i.prompts[0].name = "c.jsonl"; }},
      {"file 2 of --prompts", [](DataInfo& i) { i.prompts[1].checksum = 3; }},
      {"file 2 of --prompts", [](DataInfo& i) { i.prompts[1].plain = false; }},
      {"file 1 of --prompts", [](DataInfo& i) { std::swap(i.prompts[0], i.prompts[1]); }},
  };
}

TEST(DataInfo, ThereAndBack) {
  const DataInfo info = make();
  const auto back = parse_info(to_json(info), "x");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(difference(info, *back), "");
  EXPECT_EQ(back->prompts, info.prompts);
  EXPECT_EQ(to_json(*back), to_json(info));
}

TEST(DataInfo, NamesEachDifference) {
  for (const Change& change : changes()) {
    DataInfo other = make();
    change.make(other);
    EXPECT_THAT(difference(make(), other), HasSubstr(change.named));
    const auto back = parse_info(to_json(other), "x");
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_THAT(difference(make(), *back), HasSubstr(change.named)) << "not written";
  }
  DataInfo longer = make();
  longer.prompts.push_back({"c.jsonl", 1, 1, false});
  EXPECT_EQ(difference(make(), longer), "");
  EXPECT_EQ(difference(longer, make()), "");
}

TEST(DataInfo, RefusesWhatIsBroken) {
  const std::string text = to_json(make());
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string broken = text;
    const size_t at = broken.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    broken.replace(at, from.size(), to);
    const auto info = parse_info(broken, "d/data.json");
    EXPECT_FALSE(info.ok()) << broken;
    EXPECT_NE(info.status().code(), StatusCode::kNotFound) << "the file is there";
    return info.status().message();
  };
  EXPECT_THAT(refusal("{", "["), HasSubstr("d/data.json"));
  EXPECT_THAT(refusal("aerie_training_data\": 1", "aerie_training_data\": 2"), HasSubstr("is 2"));
  EXPECT_THAT(refusal("\"vocab\": 300", "\"vocab\": 0"), HasSubstr("'vocab'"));
  EXPECT_THAT(refusal("\"vocab\": 300", "\"vocab\": 5000000000"), HasSubstr("'vocab'"));
  EXPECT_THAT(refusal("\"seed\": ", "\"seed\": -"), HasSubstr("'seed'"));
  EXPECT_THAT(refusal("\"held_out\": 0", "\"held_out\": 1"), HasSubstr("'held_out'"));
  EXPECT_THAT(refusal("ffffffffffffffff", "fffffffffffffffff"), HasSubstr("'checksum'"));
  EXPECT_THAT(refusal("0.7\n  ]", "0.7\n  ], \"prompts\": 7"), HasSubstr("prompts"));
  EXPECT_THAT(refusal("0.7\n", "\"a\"\n"), HasSubstr("'temperatures[1]'"));
  for (const char* key : {"aerie_training_data", "model", "model_fingerprint", "vocab", "chat",
                          "context", "max_tokens", "temperatures", "seed", "held_out", "prompts"}) {
    EXPECT_THAT(refusal(fmt::format("\"{}\"", key), "\"other\""), HasSubstr(key));
  }
}

TEST(DataInfo, FolderIsClaimedOnce) {
  const test::Scratch scratch;
  const std::string folder = scratch.path("new/folder");
  EXPECT_EQ(read_info(folder).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(claim_folder(folder, make()).ok());
  EXPECT_TRUE(claim_folder(folder, make()).ok());
  for (const Change& change : changes()) {
    DataInfo other = make();
    change.make(other);
    const Status status = claim_folder(folder, other);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(change.named));
    EXPECT_THAT(status.message(), HasSubstr(folder));
  }
  EXPECT_EQ(test::read_file(folder + "/data.json"), to_json(make()));

  // More files of prompts are written down; fewer leave those that are there.
  DataInfo longer = make();
  longer.prompts.push_back({"c.jsonl", 1, 1, false});
  EXPECT_TRUE(claim_folder(folder, longer).ok());
  EXPECT_TRUE(claim_folder(folder, make()).ok());
  EXPECT_EQ(test::read_file(folder + "/data.json"), to_json(longer));

  scratch.write("new/folder/data.json", "{}");
  EXPECT_EQ(claim_folder(folder, make()).code(), StatusCode::kInvalidData);
  EXPECT_EQ(test::read_file(folder + "/data.json"), "{}");
  const std::string file = scratch.write("file", "");
  EXPECT_EQ(claim_folder(file, make()).code(), StatusCode::kInvalidArgument);
}

TEST(PromptFile, IsKnownByWhatItHolds) {
  const test::Scratch scratch;
  std::filesystem::create_directory(scratch.path("d"));
  const auto a = prompt_file(scratch.write("a.jsonl", "text\n"));
  const auto same = prompt_file(scratch.write("d/a.jsonl", "text\n"));
  const auto other = prompt_file(scratch.write("a.jsonl", "tent\n"));
  ASSERT_TRUE(a.ok() && same.ok() && other.ok());
  EXPECT_EQ(*a, *same);
  EXPECT_NE(*a, *other);
  EXPECT_EQ(prompt_file("/nowhere").status().code(), StatusCode::kNotFound);
}

}  // namespace aerie::train::info_test

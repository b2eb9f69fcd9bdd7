#include "engine/profile.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace aerie::profile_test {

using nlohmann::json;
using testing::HasSubstr;

class ProfileTest : public testing::Test {
 protected:
  ~ProfileTest() override { std::remove(path_.c_str()); }

  static Profile some() {
    Profile profile;
    profile.key = {0x1234567890abcdefu, "A processor", kernels::Isa::kReference, 3,
                   kernels::KvType::kQ8};
    profile.pass_cost = {{1, 0.004, 1e-6}, {8, 0.006, 2e-6, 40.0, 1e-5}};
    profile.choices = {{0.5, 4, "ngram:num_speculative_tokens=3", 1.25, false, "since it pays"}};
    return profile;
  }
  Expected<Profile> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_profile(path_);
  }

  std::string path_ = fmt::format("{}aerie_profile_{}.json", testing::TempDir(), getpid());
};

TEST_F(ProfileTest, ComesBackAsItWasWritten) {
  const Profile written = some();
  const auto read_back = read(to_json(written));
  ASSERT_TRUE(read_back.ok()) << read_back.status().message();
  EXPECT_EQ(difference(read_back->key, written.key), "");
  EXPECT_EQ(to_json(*read_back), to_json(written));
  EXPECT_THAT(to_json(written), testing::Not(HasSubstr("device")));  // as before there were any
}

TEST_F(ProfileTest, KnowsItsDevice) {
  Profile written = some();
  written.key.device = "A GPU";
  const auto read_back = read(to_json(written));
  ASSERT_TRUE(read_back.ok()) << read_back.status().message();
  EXPECT_EQ(read_back->key.device, "A GPU");
}

TEST_F(ProfileTest, SaysWhatIsNotTheSame) {
  const ProfileKey key = some().key;
  ProfileKey other = key;
  EXPECT_EQ(difference(key, other), "");
  other.threads = 5;
  EXPECT_EQ(difference(key, other), "3 threads, now 5");
  other = key;
  other.model = 1;
  EXPECT_EQ(difference(key, other), "another model");
  other = key;
  other.processor = "B";
  EXPECT_EQ(difference(key, other), "A processor, now B");
  other = key;
  other.cache_type = kernels::KvType::kF16;
  EXPECT_EQ(difference(key, other), "cache q8, now f16");
  other = key;
  other.device = "A GPU";
  EXPECT_EQ(difference(key, other), "the processor, now A GPU");
  EXPECT_EQ(difference(other, key), "A GPU, now the processor");
}

TEST_F(ProfileTest, TheNearestChoiceIsTaken) {
  Profile profile;
  for (const double temperature : {0.0, 1.0}) {
    for (const int batch : {1, 4}) {
      profile.choices.push_back(
          {temperature, batch, fmt::format("{}-{}", temperature, batch), 1.0, false, ""});
    }
  }
  const auto chosen = [&](double temperature, int batch) {
    const ProfileChoice* choice = choice_for(profile, temperature, batch);
    return choice == nullptr ? "" : choice->speculate;
  };
  EXPECT_EQ(chosen(0.2, 1), "0-1");
  EXPECT_EQ(chosen(0.7, 1), "1-1");
  EXPECT_EQ(chosen(2.0, 3), "1-1");
  EXPECT_EQ(chosen(0.0, 4), "0-4");
  EXPECT_EQ(chosen(0.0, 64), "0-4");
  profile.choices.erase(profile.choices.begin());
  EXPECT_EQ(chosen(0.0, 1), "1-1");
  EXPECT_EQ(choice_for(Profile(), 0.0, 1), nullptr);
}

TEST_F(ProfileTest, SaysInWordsWhatPays) {
  Profile profile;
  const auto add = [&](double temperature, int batch, const char* speculate, double speedup) {
    profile.choices.push_back({temperature, batch, speculate, speedup, batch == 1, ""});
  };
  add(0.0, 1, "suffix", 1.5);
  add(0.0, 2, "suffix", 1.25);
  add(0.0, 4, "ngram", 1.1);
  add(0.0, 8, "none", 1.0);
  add(0.0, 16, "none", 1.0);
  add(1.0, 1, "none", 1.0);
  add(1.0, 2, "none", 1.0);
  EXPECT_EQ(in_words(profile),
            (std::vector<std::string>{
                "at temperature 0: 1 to 2 at a time: suffix (1.50 times plain decoding to 1.25); 4 "
                "at a time: ngram (1.10 times plain decoding); from 8 at a time on: decode plainly",
                "at temperature 1: from 1 at a time on: decode plainly"}));
  EXPECT_EQ(json::parse(to_json(profile))["words"].size(), 2u);
}

TEST_F(ProfileTest, WhatIsNoProfileIsRefused) {
  EXPECT_EQ(read_profile(path_ + ".none").status().code(), StatusCode::kNotFound);
  const json good = json::parse(to_json(some()));
  const auto refused = [&](const json& changed, const std::string& why) {
    const auto profile = read(changed.dump());
    ASSERT_FALSE(profile.ok()) << why;
    EXPECT_EQ(profile.status().code(), StatusCode::kInvalidData);
    EXPECT_THAT(profile.status().message(), HasSubstr(path_));
    EXPECT_THAT(profile.status().message(), HasSubstr(why));
  };
  for (const auto& [key, value] : good.items()) {
    if (key == "words") continue;  // for people
    json without = good;
    without.erase(key);
    refused(without, fmt::format("'{}' is missing", key));
    json wrong = good;
    wrong[key] = nullptr;
    refused(wrong, fmt::format("'{}'", key));
  }
  const auto changed = [&](const char* pointer, const json& value) {
    json other = good;
    other[json::json_pointer(pointer)] = value;
    return other;
  };
  refused(changed("/aerie_profile", 2), "'aerie_profile' must be a number from 1 to 1");
  refused(changed("/isa", "sse9"), "'isa' sse9 is not in this build");
  refused(changed("/cache_type", "q1"), "'cache_type' q1 is unknown");
  refused(changed("/pass_cost", json::array()), "'pass_cost' is empty");
  refused(changed("/pass_cost/1/rows", 1), "must ascend");
  refused(changed("/pass_cost/1/rows", 1.5), "'rows' must be a whole number");
  refused(changed("/pass_cost/0/seconds", -1), "'seconds' must be a number");
  refused(changed("/choices/0", 7), "'temperature' is missing");
  EXPECT_THAT(read("[1").status().message(), HasSubstr("it is not JSON"));
  EXPECT_THAT(read("").status().message(), HasSubstr("it is not JSON"));
  EXPECT_THAT(read("[]").status().message(), HasSubstr("'aerie_profile' is missing"));
}

}  // namespace aerie::profile_test

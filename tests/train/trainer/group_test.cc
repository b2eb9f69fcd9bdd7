// Several processes train as one does. For builds that can have them.
#include "train/run/groups/group.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/train/temporary_folder.h"
#include "tests/train/trainer/toy_method.h"
#include "train/run/run_log.h"
#include "train/run/trainer.h"

namespace aerie::train::group_test {

using test::TemporaryFolder;
using test::ToyFeatures;
using test::ToyMethod;
using ::testing::HasSubstr;

constexpr const char* kFolderVariable = "AERIE_TEST_GROUP";
constexpr const char* kRankVariable = "AERIE_TEST_RANK";
constexpr const char* kMeetingVariable = "AERIE_TEST_MEETING";

TEST(Group, RefusesRendezvousThatAreNone) {
  for (const char* text : {"", "somewhere", "tcp://here", "tcp://here:0", "tcp://here:99999"}) {
    const auto group = join_group({.world = 2, .rank = 1, .rendezvous = text});
    EXPECT_EQ(group.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(group.status().message(), HasSubstr("--rendezvous"));
  }
}

TrainOptions options_of(const std::string& folder) {
  TrainOptions options = test::toy_options(folder);
  options.clip_norm = 0.05;
  options.checkpoint.steps = 2;
  options.evaluation.steps = 5;
  return options;
}

// The part of a run that one process of a group has.
Expected<TrainResult> run_share(Group& group, const std::string& folder, int accumulate,
                                ToyMethod& method) {
  const std::vector<Sample> samples = test::toy_samples(40);
  ToyFeatures features;
  const TrainingSet set = test::toy_set(samples, features);
  TrainOptions options = options_of(folder);
  options.accumulate = accumulate;
  return train(method, set, options, group, {});
}

// The program that a process runs. What it came to is in RANK.txt.
TEST(GroupChild, DISABLED_Trains) {
  const std::string folder = std::getenv(kFolderVariable);
  const int rank = std::atoi(std::getenv(kRankVariable));
  const auto group =
      join_group({.world = 2, .rank = rank, .rendezvous = std::getenv(kMeetingVariable)});
  ASSERT_TRUE(group.ok()) << group.status().message();
  ToyMethod method(
      {.dropout = 0.3, .failing_call = folder.ends_with("failing") && rank == 1 ? 3 : 0});
  if (folder.ends_with("drifting") && rank == 1) {
    const at::NoGradGuard no_grad;
    at::Tensor value = method.parameters().list().front().value;
    value.add_(1e-3);
  }
  const auto result = run_share(**group, folder + "/run", 1, method);
  std::ofstream file(folder + "/" + std::to_string(rank) + ".txt", std::ios::binary);
  if (!result.ok()) {
    file << result.status().message();
    return;
  }
  const std::vector<float> values = method.values();
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
}

pid_t start_child(const std::string& folder, int rank, const std::string& meeting) {
  std::vector<std::string> arguments = {"/proc/self/exe", "--gtest_also_run_disabled_tests",
                                        "--gtest_filter=GroupChild.DISABLED_Trains"};
  std::vector<std::string> variables = {std::string(kFolderVariable) + "=" + folder,
                                        std::string(kRankVariable) + "=" + std::to_string(rank),
                                        std::string(kMeetingVariable) + "=" + meeting};
  std::vector<char*> argv, environment;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  for (std::string& variable : variables) environment.push_back(variable.data());
  argv.push_back(nullptr);
  environment.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execve(argv.front(), argv.data(), environment.data());
    _exit(127);
  }
  return child;
}

// What each of the two processes wrote.
std::pair<std::string, std::string> run_two(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const std::string meeting = "file://" + folder + "/meeting";
  const pid_t first = start_child(folder, 0, meeting), second = start_child(folder, 1, meeting);
  for (const pid_t child : {first, second}) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const auto text = [&](const char* name) {
    std::ifstream file(folder + name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  return {text("/0.txt"), text("/1.txt")};
}

TEST(Group, TwoProcessesTrainAsOneWithTwiceTheBatches) {
  const TemporaryFolder folder;
  const auto [first, second] = run_two(folder.path() + "/two");
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(first, second);

  ToyMethod method({.dropout = 0.3});
  const auto lone = join_group({});
  const auto result = run_share(**lone, folder.path() + "/one", 2, method);
  ASSERT_TRUE(result.ok());
  const std::vector<float> values = method.values();
  ASSERT_EQ(first.size(), values.size() * sizeof(float));
  double difference = 0.0, length = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    float other = 0.0F;
    std::memcpy(&other, first.data() + i * sizeof(float), sizeof(float));
    ASSERT_NEAR(values[i], other, 1e-5);
    difference += std::abs(values[i] - other);
    length += std::abs(values[i]);
  }
  EXPECT_GT(length, 1.0);  // it has moved
  EXPECT_LT(difference, 1e-4 * length);
  const auto two = RunLog::open(folder.path() + "/two/run/log.jsonl", 100)->lines();
  const auto one = RunLog::open(folder.path() + "/one/log.jsonl", 100)->lines();
  ASSERT_EQ(two.size(), one.size());
  for (size_t i = 0; i < two.size(); ++i) {
    const auto loss = [](const Json& line) {
      return (line.contains("evaluation") ? line["evaluation"] : line)["loss"].get<double>();
    };
    EXPECT_NEAR(loss(two[i]), loss(one[i]), 1e-4);
    EXPECT_EQ(two[i]["tokens"], one[i]["tokens"]);
  }
}

TEST(Group, AnErrorOfOneEndsBoth) {
  const TemporaryFolder folder;
  const auto [first, second] = run_two(folder.path() + "/failing");
  EXPECT_THAT(first, HasSubstr("another process failed"));
  EXPECT_THAT(second, HasSubstr("the toy is broken"));
}

TEST(Group, ParametersThatDriftedApartAreFound) {
  const TemporaryFolder folder;
  const auto [first, second] = run_two(folder.path() + "/drifting");
  EXPECT_THAT(first, HasSubstr("not the same"));
  EXPECT_EQ(first, second);
}

}  // namespace aerie::train::group_test

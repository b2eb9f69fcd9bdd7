// Whole training runs of a toy.
#include "train/run/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "format/json.h"
#include "tests/testing/file_size_limit.h"
#include "tests/train/temporary_folder.h"
#include "tests/train/trainer/toy_method.h"
#include "train/batches/gather.h"
#include "train/run/run_log.h"

namespace aerie::train::trainer_test {

using test::TemporaryFolder;
using test::ToyFeatures;
using test::ToyMethod;
using test::ToyOptions;
using ::testing::HasSubstr;

constexpr int kSamples = 40;
constexpr const char* kFolderVariable = "AERIE_TEST_RUN";

// A run in one process; its options can be changed before it starts.
struct ToyRun {
  explicit ToyRun(const std::string& folder, const ToyOptions& toy = {})
      : samples(test::toy_samples(kSamples)),
        method(toy),
        set(test::toy_set(samples, features)),
        options(test::toy_options(folder)) {}

  Expected<TrainResult> go() {
    auto group = join_group({});
    return train(method, set, options, **group, calls);
  }
  std::vector<Json> log() const {
    return RunLog::open(options.folder + "/log.jsonl", 1 << 20)->lines();
  }

  std::vector<Sample> samples;
  ToyFeatures features;
  ToyMethod method;
  TrainingSet set;
  TrainOptions options;
  TrainCalls calls;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Trainer, LearnsAndLeavesWhatARunHolds) {
  const TemporaryFolder folder;
  ToyRun run(folder.path() + "/run");
  run.options.budget.steps = 60;
  run.options.log_steps = 5;
  run.options.evaluation.steps = 20;
  run.options.config.free = {{"--threads", "2"}};
  std::vector<std::string> measured;
  run.calls.acceptance = [&](const std::string& at) -> Expected<Acceptance> {
    measured.push_back(at);
    EXPECT_TRUE(std::filesystem::exists(at + "/model.safetensors"));
    Acceptance acceptance;
    acceptance.tau = measured.size() == 2 ? 3.0 : 2.0;
    acceptance.per_position = {0.7, 0.3};
    return acceptance;
  };
  run.calls.describe = [](const std::string& at, const RunState& state, const Evaluation&) {
    std::ofstream(at + "/README.md") << state.step;
    return Status();
  };
  const auto result = run.go();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->end, TrainEnd::kDone);
  EXPECT_EQ(result->state.step, 60);
  EXPECT_EQ(measured.size(), 3U);
  EXPECT_EQ(result->state.best_step, 40);
  EXPECT_EQ(text_of(run.options.folder + "/best/README.md"), "40");
  EXPECT_EQ(text_of(run.options.folder + "/final/README.md"), "60");
  EXPECT_EQ(run.method.progress.size(), 60U);
  EXPECT_EQ(run.method.progress.front(), 0.0);
  EXPECT_DOUBLE_EQ(run.method.progress.back(), 59.0 / 60.0);

  const std::vector<Json> lines = run.log();
  ASSERT_EQ(lines.size(), 60U / 5U + 3U);
  EXPECT_LT(lines[lines.size() - 2]["loss"].get<double>(),
            0.6 * lines.front()["loss"].get<double>());
  for (const char* key : {"epoch", "tokens", "seconds", "rate", "gradient_norm", "asked"}) {
    EXPECT_TRUE(lines.front().contains(key)) << key;
  }
  // Of this call, the steps' share of which is told in every line.
  EXPECT_EQ(result->rows, result->state.rows);
  EXPECT_GE(result->seconds, result->steps.sum());
  double logged = 0.0;
  for (const Json& line : lines) {
    if (!line.contains("seconds_of")) continue;
    for (const auto& [name, seconds] : line["seconds_of"].items()) logged += seconds.get<double>();
  }
  EXPECT_GT(logged, 0.0);
  EXPECT_NEAR(logged, result->steps.sum(), 1e-6);
  EXPECT_EQ(lines.back()["evaluation"]["tau"].get<double>(), 2.0);
  EXPECT_GT(lines.back()["evaluation"]["loss"].get<double>(), 0.0);
  EXPECT_NEAR(lines[lines.size() - 2]["rate"].get<double>(), 0.005, 1e-9);
  const std::string page = text_of(run.options.folder + "/curves.html");
  const auto count = [&page](const std::string& word) {
    int times = 0;
    for (size_t at = 0; (at = page.find(word, at)) != std::string::npos; ++at) ++times;
    return times;
  };
  EXPECT_EQ(count("<svg"), 5);
  EXPECT_EQ(count("</svg>"), 5);
  EXPECT_EQ(count("</html>"), 1);
  EXPECT_EQ(count("nan"), 0);
  const auto config = read_json(run.options.folder + "/config.json");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)["other_options"]["--threads"], "2");
}

// A finished run is left alone.
TEST(Trainer, DoesNotTrainOnBehindTheEnd) {
  const TemporaryFolder folder;
  ToyRun first(folder.path() + "/run");
  ASSERT_TRUE(first.go().ok());
  ToyRun second(folder.path() + "/run");
  const auto result = second.go();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->end, TrainEnd::kDone);
  EXPECT_FALSE(result->last.has_value());
  EXPECT_EQ(second.method.values(), first.method.values());
}

TEST(Trainer, EpochsAreCountedInSteps) {
  const TemporaryFolder folder;
  ToyRun run(folder.path() + "/run");
  run.options.budget = {.epochs = 3};
  run.options.accumulate = 3;
  const auto result = run.go();
  ASSERT_TRUE(result.ok());
  int64_t steps = 0;
  std::vector<int64_t> lengths;
  for (const Sample* sample : run.set.training) lengths.push_back(std::ssize(sample->tokens));
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    steps += (std::ssize(plan_epoch(lengths, run.options.plan, epoch)) + 2) / 3;
  }
  EXPECT_EQ(result->state.step, steps);
  EXPECT_EQ(result->state.position, (Position{3, 0}));
}

TEST(Trainer, TimeIsABudget) {
  const TemporaryFolder folder;
  ToyRun run(folder.path() + "/run", {.wait_ms = 5});
  run.options.budget = {.seconds = 0.3};
  const auto result = run.go();
  ASSERT_TRUE(result.ok());
  EXPECT_GT(result->state.step, 1);
  EXPECT_GE(result->state.seconds, 0.3);
  double last = -1.0;
  for (const double share : run.method.progress) {
    EXPECT_GE(share, last);
    EXPECT_LT(share, 1.0);
    last = share;
  }
}

// Accumulated batches make the step that one large batch makes.
TEST(Trainer, AccumulatesToTheMeanOfAllRows) {
  const TemporaryFolder folder;
  ToyRun small(folder.path() + "/small"), large(folder.path() + "/large");
  for (ToyRun* run : {&small, &large}) {
    run->options.budget.steps = 2;
    run->options.plan.batch_tokens = 1 << 20;
    run->set.validation.clear();
  }
  // One sample in each batch, and all of the epoch in a step.
  small.options.plan.batch_tokens = 1;
  small.options.accumulate = static_cast<int>(small.set.training.size());
  ASSERT_TRUE(small.go().ok());
  ASSERT_TRUE(large.go().ok());
  const std::vector<float> a = small.method.values(), b = large.method.values();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5);
}

TEST(Trainer, ClipsGradients) {
  const TemporaryFolder folder;
  ToyRun free(folder.path() + "/free"), by_norm(folder.path() + "/norm"),
      by_value(folder.path() + "/value");
  by_norm.options.clip_norm = 1e-3;
  by_value.options.clip_value = 1e-4;
  for (ToyRun* run : {&free, &by_norm, &by_value}) {
    run->options.budget.steps = 1;
    // Steps then are as long as gradients: moments do not make up for their size.
    run->options.adamw.eps = 1.0;
    ASSERT_TRUE(run->go().ok());
  }
  const auto length = [](const ToyRun& run) {
    double sum = 0.0;
    for (const float value : run.method.values()) sum += value * value;
    return std::sqrt(sum);
  };
  EXPECT_EQ(free.log().front()["clipped"].get<double>(), 0.0);
  EXPECT_EQ(by_norm.log().front()["clipped"].get<double>(), 1.0);
  EXPECT_NEAR(by_norm.log().front()["gradient_norm"].get<double>(),
              free.log().front()["gradient_norm"].get<double>(), 1e-6);
  EXPECT_LE(length(by_norm), 0.005 * 1e-3 * 1.01);
  EXPECT_LT(length(by_norm), 0.1 * length(free));
  for (const float value : by_value.method.values()) EXPECT_LE(std::abs(value), 0.005 * 1.01e-4);
}

TEST(Trainer, MultipliesIn16BitsIfAsked) {
  const TemporaryFolder folder;
  ToyRun whole(folder.path() + "/float"), half(folder.path() + "/bf16");
  half.options.autocast = true;
  ASSERT_TRUE(whole.go().ok());
  ASSERT_TRUE(half.go().ok());
  const std::vector<float> a = whole.method.values(), b = half.method.values();
  EXPECT_NE(a, b);
  double difference = 0.0, length = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::abs(a[i] - b[i]);
    length += std::abs(a[i]);
  }
  EXPECT_LT(difference, 0.1 * length);
  EXPECT_EQ(at::matmul(at::ones({2, 2}), at::ones({2, 2})).scalar_type(), at::kFloat);  // over
}

TEST(Trainer, StopsWithoutGain) {
  const TemporaryFolder folder;
  ToyRun run(folder.path() + "/run");
  run.options.evaluation.steps = 1;
  run.options.patience = 2;
  int calls = 0;
  run.calls.acceptance = [&](const std::string&) -> Expected<Acceptance> {
    Acceptance acceptance;
    acceptance.tau = ++calls == 3 ? 2.0 : 1.0;
    return acceptance;
  };
  const auto result = run.go();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->end, TrainEnd::kStoppedEarly);
  EXPECT_EQ(result->state.step, 5);
  EXPECT_EQ(result->state.best_step, 3);
}

// Interrupted after every step, and in the middle of a measurement, a run comes to the same.
TEST(Trainer, GoesOnBitForBit) {
  const TemporaryFolder folder;
  const ToyOptions toy = {.dropout = 0.3};
  const auto prepare = [](ToyRun& run) {
    run.options.accumulate = 2;
    run.options.clip_norm = 0.05;
    run.options.evaluation.steps = 4;
    run.options.adamw.weight_decay = 0.1;
  };
  ToyRun whole(folder.path() + "/whole", toy);
  prepare(whole);
  ASSERT_TRUE(whole.go().ok());

  bool measured_once = false;
  std::vector<int64_t> steps;
  for (int part = 0; part < 30; ++part) {
    ToyRun run(folder.path() + "/parts", toy);
    prepare(run);
    std::atomic<bool> cancel{false};
    run.calls.cancel = &cancel;
    run.calls.progress = [&](const std::string&) { cancel = true; };
    run.calls.acceptance = [&](const std::string&) -> Expected<Acceptance> {
      if (!std::exchange(measured_once, true)) return Status(StatusCode::kCancelled, "stopped");
      return Acceptance();
    };
    const auto result = run.go();
    ASSERT_TRUE(result.ok()) << result.status().message();
    steps.push_back(result->state.step);
    if (result->end == TrainEnd::kInterrupted) continue;
    EXPECT_EQ(run.method.values(), whole.method.values());
    EXPECT_EQ(result->state.step, 10);
    EXPECT_GT(part, 9);
    const auto losses = [](const std::vector<Json>& lines) {
      std::vector<std::pair<int64_t, double>> all;
      for (const Json& line : lines) {
        const Json& figures = line.contains("evaluation") ? line["evaluation"] : line;
        all.emplace_back(line["step"].get<int64_t>(), figures["loss"].get<double>());
      }
      return all;
    };
    EXPECT_EQ(losses(run.log()), losses(whole.log()));
    return;
  }
  FAIL() << "it never came to an end";
}

TEST(Trainer, RefusesTheFolderOfAnotherRun) {
  const TemporaryFolder folder;
  ToyRun first(folder.path() + "/run"), second(folder.path() + "/run");
  ASSERT_TRUE(first.go().ok());
  second.options.config.fixed[0].second = "2";
  const auto result = second.go();
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(result.status().message(), HasSubstr("--seed is 1 there and 2 now"));
}

TEST(Trainer, BeginsWithParametersOfAnotherRun) {
  const TemporaryFolder folder;
  ToyRun first(folder.path() + "/first"), second(folder.path() + "/second");
  ASSERT_TRUE(first.go().ok());
  second.options.init = first.options.folder;
  second.options.budget.steps = 1;
  ASSERT_TRUE(second.go().ok());
  EXPECT_LT(second.log().front()["loss"].get<double>(),
            0.9 * first.log().front()["loss"].get<double>());
  ToyRun third(folder.path() + "/third");
  third.options.init = folder.path();
  EXPECT_EQ(third.go().status().code(), StatusCode::kNotFound);

  ToyRun fourth(folder.path() + "/fourth");
  fourth.options.init = first.options.folder + "/final";
  fourth.options.budget.steps = 1;
  ASSERT_TRUE(fourth.go().ok());
  EXPECT_LT(fourth.log().front()["loss"].get<double>(),
            0.95 * first.log().front()["loss"].get<double>());
}

TEST(Trainer, StopsWhereTheLossIsNoNumber) {
  const TemporaryFolder folder;
  ToyRun run(folder.path() + "/run", {.broken_call = 4});
  run.options.checkpoint.steps = 1;
  const auto result = run.go();
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidData);
  EXPECT_THAT(result.status().message(), HasSubstr("step 4"));
  for (const float value : run.method.values()) EXPECT_TRUE(std::isfinite(value));
  // The next try goes on from before.
  ToyRun again(folder.path() + "/run"), whole(folder.path() + "/whole");
  ASSERT_TRUE(again.go().ok());
  ASSERT_TRUE(whole.go().ok());
  EXPECT_EQ(again.method.values(), whole.method.values());
}

TEST(Trainer, HandsErrorsOn) {
  const TemporaryFolder folder;
  ToyRun run(folder.path() + "/run", {.failing_call = 3});
  EXPECT_THAT(run.go().status().message(), HasSubstr("the toy is broken"));
  ToyRun empty(folder.path() + "/empty");
  empty.set.training.clear();
  EXPECT_EQ(empty.go().status().code(), StatusCode::kInvalidArgument);
  ToyRun endless(folder.path() + "/endless");
  endless.options.budget = {};
  EXPECT_EQ(endless.go().status().code(), StatusCode::kInvalidArgument);
}

TEST(Trainer, SaysThatTheDiskIsFull) {
  const TemporaryFolder folder;
  ToyRun run(folder.path() + "/run");
  const test::FileSizeLimit limit(2000);
  EXPECT_EQ(run.go().status().code(), StatusCode::kResourceExhausted);
}

struct KilledRun : ToyRun {
  explicit KilledRun(const std::string& folder) : ToyRun(folder, {.dropout = 0.3, .wait_ms = 4}) {
    options.budget.steps = 40;
    options.checkpoint.steps = 3;
    options.evaluation.steps = 5;
  }
};

// What the killed process runs: another program, since threads do not survive a fork.
TEST(TrainerChild, DISABLED_Trains) {
  const char* const folder = std::getenv(kFolderVariable);
  ASSERT_NE(folder, nullptr);
  KilledRun run(folder);
  ASSERT_TRUE(run.go().ok());
}

// Starts the program above; its number.
pid_t start_child(const std::string& folder) {
  const std::string variable = std::string(kFolderVariable) + "=" + folder;
  std::vector<std::string> arguments = {"/proc/self/exe", "--gtest_also_run_disabled_tests",
                                        "--gtest_filter=TrainerChild.DISABLED_Trains"};
  std::vector<char*> argv, environment;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execve(argv.front(), argv.data(), environment.data());
    _exit(127);
  }
  return child;
}

int64_t lines_in(const std::string& path) {
  const std::string text = text_of(path);
  return std::count(text.begin(), text.end(), '\n');
}

TEST(Trainer, SurvivesBeingKilled) {
  const TemporaryFolder folder;
  const std::string killed = folder.path() + "/killed";
  int kills = 0, status = 0;
  bool ended = false;
  for (int part = 0; part < 100 && !ended; ++part) {
    const pid_t child = start_child(killed);
    ASSERT_GT(child, 0);
    // Not always at the same moment: after some lines of the log, and a little later than these.
    const int64_t wanted = 1 + part * 5 % 7;
    const int64_t before = lines_in(killed + "/log.jsonl");
    while (!ended && lines_in(killed + "/log.jsonl") < before + wanted) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ended = waitpid(child, &status, WNOHANG) == child;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(part * 1700 % 6000));
    if (!ended) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      ended = WIFEXITED(status);
      if (!ended) ++kills;
    }
  }
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_GT(kills, 2);
  KilledRun back(killed);
  const auto result = back.go();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->end, TrainEnd::kDone);
  EXPECT_FALSE(result->last.has_value());  // it had come to its end
  KilledRun whole(folder.path() + "/whole");
  ASSERT_TRUE(whole.go().ok());
  EXPECT_EQ(back.method.values(), whole.method.values());
  EXPECT_EQ(back.log().size(), whole.log().size());
}

}  // namespace aerie::train::trainer_test

// The whole way in small, as docs/training.md shows it: a random target of two layers, its answers,
// a head that learns from them, and how much of its drafts the target accepts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "measure/models/make_model.h"
#include "tests/train/data/data_folder.h"
#include "train/batches/training_data.h"
#include "train/command/train_command.h"
#include "train/run/evaluate.h"
#include "train/run/run_log.h"

namespace aerie::train::end_to_end_test {

using test::Scratch;

constexpr double kTemperature = 0.3;  // greedy output of random weights only loops
constexpr int kReplyTokens = 64;
constexpr int kEvaluated = 24;

std::string write_model(const Scratch& scratch) {
  measure::MakeModelOptions options;
  options.shape = "tiny";
  options.type = DType::kQ8_0;
  options.output = scratch.path("tiny.gguf");
  options.threads = 1;
  const auto made = measure::make_model(options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return options.output;
}

std::string write_texts(const Scratch& scratch, int count) {
  const std::vector<std::string> words = {"river", "stone",  "light",  "house", "paper",
                                          "music", "winter", "garden", "letter"};
  std::mt19937 random(1);
  std::string lines;
  for (int i = 0; i < count; ++i) {
    lines += R"({"prompt": ")";
    for (int word = 0; word < 5; ++word) lines += words[random() % words.size()] + " ";
    lines += "\"}\n";
  }
  return scratch.write("prompts.jsonl", lines);
}

// What the command's last evaluation says of a head that was trained for so many steps.
double trained_tau(const Scratch& scratch, const std::string& model, const std::string& data,
                   int steps) {
  const std::string run = scratch.path("run-" + std::to_string(steps));
  const std::string line = fmt::format(
      "eagle3 -m {} --data {} --out {} --steps {} --batch-tokens 1024 --learning-rate 3e-3 "
      "--eval-prompts {} --eval-tokens {} --eval-temperature {} --threads 1",
      model, data, run, steps, kEvaluated, kReplyTokens, kTemperature);
  CLI::App app;
  const auto command = add_train_commands(app);
  app.parse(line);
  const auto trained = command("aerie train " + line);
  EXPECT_TRUE(trained.ok()) << trained.status().message();
  const auto log = RunLog::open(run + "/log.jsonl", steps);
  EXPECT_TRUE(log.ok()) << log.status().message();
  double tau = 0.0;
  for (const Json& entry : log->lines()) {
    if (entry.contains("evaluation")) tau = entry["evaluation"]["tau"].get<double>();
  }
  return tau;
}

TEST(EndToEnd, AHeadLearnsToDraftBetterThanLookup) {
  const Scratch scratch;
  const std::string model = write_model(scratch);
  GenerateOptions answers = test::options_for(scratch, model, {write_texts(scratch, 300)});
  answers.use_template = false;
  answers.out = scratch.path("data");
  answers.settings.max_tokens = kReplyTokens;
  answers.settings.temperatures = {kTemperature};
  answers.held_out = 0.1;
  test::generate(answers);

  DataOptions data_options;
  data_options.folders = {answers.out};
  data_options.model = model;
  const auto data = TrainingData::open(data_options);
  ASSERT_TRUE(data.ok()) << data.status().message();
  AcceptanceOptions acceptance;
  acceptance.engine.model = model;
  acceptance.engine.threads = 1;
  acceptance.prompts = (*data)->held_out_prompts(kEvaluated);
  acceptance.max_tokens = kReplyTokens;
  acceptance.temperature = kTemperature;
  const auto ngram = parse_speculative_spec("ngram:num_speculative_tokens=5");
  ASSERT_TRUE(ngram.ok()) << ngram.status().message();
  const auto lookup = measure_acceptance(acceptance, *ngram);
  ASSERT_TRUE(lookup.ok()) << lookup.status().message();

  // After one step, whose learning rate is still next to nothing, and after forty.
  const double begun = trained_tau(scratch, model, answers.out, 1);
  const double learned = trained_tau(scratch, model, answers.out, 40);
  EXPECT_GT(learned, begun + 0.3);
  EXPECT_GT(learned, lookup->tau + 0.5);
  RecordProperty("lookup", std::to_string(lookup->tau));
  RecordProperty("begun", std::to_string(begun));
  RecordProperty("learned", std::to_string(learned));
}

}  // namespace aerie::train::end_to_end_test

// `aerie train METHOD` as users run it, with a tiny target and what that says.
#include "train/command/train_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "draft/speculative_config.h"
#include "engine/engine.h"
#include "format/json.h"
#include "format/output_file.h"
#include "format/safetensors/quantized_folder.h"
#include "tensor/dtype.h"
#include "tests/testing/tiny_model.h"
#include "tests/train/data/data_folder.h"
#include "train/batches/training_data.h"
#include "train/command/train_flags.h"
#include "train/data/features/feature_store.h"
#include "train/data/generate_data.h"
#include "train/methods/training_methods.h"
#include "train/nn/autocast.h"
#include "train/run/evaluate.h"
#include "train/run/model_card.h"
#include "train/run/run_log.h"

namespace aerie::train::command_test {

using test::Scratch;
using ::testing::HasSubstr;
using ::testing::Not;

// A target of six layers and two folders of its samples, for all tests.
class Command : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = std::make_unique<Scratch>();
    write_model("target.gguf", 1);
    for (const char* name : {"first", "second"}) {
      const std::string prompts =
          test::write_prompts(*scratch_, std::string(name) + ".jsonl", name[0] == 'f' ? 24 : 9);
      GenerateOptions options = test::options_for(*scratch_, path("target.gguf"), {prompts});
      options.out = path(name);
      test::generate(options);
    }
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static std::string path(const std::string& name) { return scratch_->path(name); }

  static void write_model(const std::string& name, uint64_t seed) {
    aerie::test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = aerie::test::kByteVocab;
    spec.layers = 6;
    spec.seed = seed;
    ASSERT_TRUE(tiny_gguf(spec).write(path(name)).ok());
  }

  // The command with what every run here wants, and `more` behind it.
  static Expected<int> run(const std::string& method, const std::string& out,
                           const std::vector<std::string>& more, int steps = 2) {
    std::vector<std::string> words = {
        method,          "-m",      path("target.gguf"), "--data", path("first"),    path("second"),
        "--out",         path(out), "--batch-tokens",    "300",    "--eval-prompts", "3",
        "--eval-tokens", "12",      "--threads",         "1"};
    if (steps > 0) words.insert(words.end(), {"--steps", std::to_string(steps)});
    words.insert(words.end(), more.begin(), more.end());
    CLI::App app;
    const auto command = add_train_commands(app);
    std::reverse(words.begin(), words.end());
    try {
      app.parse(words);
    } catch (const CLI::ParseError& error) {
      return Status(StatusCode::kInvalidArgument, error.what());
    }
    return command("aerie train as typed");
  }

  // report.json says what the log says, and what it says to use can be.
  static void expect_report(const std::string& folder, const std::vector<Json>& log) {
    const auto report = read_json(folder + "/report.json");
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ((*report)["end"], "done");
    EXPECT_EQ((*report)["head"], folder + "/best");
    const Json best = (*report)["best"];
    const bool told = std::any_of(log.begin(), log.end(), [&](const Json& line) {
      return line.contains("evaluation") && line["step"] == (*report)["best_step"] &&
             line["evaluation"] == best;
    });
    EXPECT_TRUE(told) << best;
    const std::string speculate = (*report)["speculate"];
    const auto config = parse_speculative_spec(speculate);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EngineOptions options;
    options.model = (*report)["model"];
    options.threads = 1;
    options.speculation = *config;
    const auto engine = Engine::open(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    EXPECT_THAT((*report)["commands"][0].get<std::string>(), HasSubstr("--speculate"));
  }

  static std::unique_ptr<TrainingData> open(const DataOptions& options) {
    auto data = TrainingData::open(options);
    EXPECT_TRUE(data.ok()) << data.status().message();
    return *std::move(data);
  }
  static DataOptions data_options() {
    DataOptions options;
    options.folders = {path("first"), path("second")};
    options.model = path("target.gguf");
    return options;
  }

  static std::unique_ptr<Scratch> scratch_;
};
std::unique_ptr<Scratch> Command::scratch_;

// All methods, from samples to a checkpoint that the engine drafts with.
TEST_F(Command, TrainsEveryMethod) {
  constexpr int kSteps = 8;
  for (const TrainingMethod* method : training_methods()) {
    const std::string name(method->name);
    SCOPED_TRACE(name);
    const auto status = run(name, name, {"--learning-rate", "3e-3", "--eval-steps", "1"}, kSteps);
    ASSERT_TRUE(status.ok()) << status.status().message();
    EXPECT_EQ(*status, 0);
    const std::string folder = path(name);
    for (const char* part : {"/best", "/final"}) {
      const std::string card = test::read_file(folder + part + "/README.md");
      EXPECT_THAT(card, HasSubstr("τ = "));
      EXPECT_THAT(card, HasSubstr("aerie train as typed"));
      EXPECT_THAT(card, HasSubstr("first.jsonl"));
      EXPECT_THAT(card, Not(HasSubstr("{}")));
    }
    const auto log = RunLog::open(folder + "/log.jsonl", 100);
    ASSERT_TRUE(log.ok());
    // Were what is computed with not what the optimizer changes, nothing would come of it.
    std::vector<double> losses;
    for (const Json& line : log->lines()) {
      if (line.contains("evaluation")) losses.push_back(line["evaluation"]["loss"].get<double>());
    }
    ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
    EXPECT_LT(*std::min_element(losses.begin(), losses.end()), 0.99 * losses.front());
    const Json& evaluation = log->lines().back()["evaluation"];
    EXPECT_GE(evaluation["tau"].get<double>(), 1.0);
    EXPECT_GT(evaluation["loss"].get<double>(), 0.0);
    EXPECT_EQ(evaluation["replies"].get<int>(), 3);
    expect_report(folder, log->lines());
    std::filesystem::remove_all(folder);
  }
}

TEST_F(Command, GoesOnWithTheSameOptionsAlone) {
  ASSERT_TRUE(run("medusa", "same", {}).ok());
  const auto again = run("medusa", "same", {"--learning-rate", "1e-3", "--log-steps", "7"});
  ASSERT_TRUE(again.ok()) << again.status().message();  // the default, written otherwise
  const auto refused = [&](const std::string& method, const std::vector<std::string>& more,
                           const std::string& word) {
    const auto status = run(method, "same", more);
    EXPECT_EQ(status.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.status().message(), HasSubstr(word));
  };
  refused("medusa", {"--learning-rate", "0.002"}, "--learning-rate is 1e-3 there and 0.002 now");
  refused("medusa", {"--heads", "2"}, "--heads");
  refused("medusa", {"--held-out", "0.5"}, "--held-out");
  refused("hydra", {}, "it trains medusa, not hydra");
  refused("medusa", {"--accumulate", "2"}, "batches of a step");
}

// What is trained for four bits drafts in four bits, by its configuration and by what the card
// says.
TEST_F(Command, TrainsForATypeOfDrafts) {
  const auto values = [](const std::string& run) {
    const auto log = RunLog::open(path(run) + "/log.jsonl", 2);
    EXPECT_TRUE(log.ok()) << log.status().message();
    return log.ok() ? log->lines().back()["evaluation"]["loss"].get<double>() : 0.0;
  };
  for (const char* type : {"q4_0", "q8_0"}) {
    const std::string out = std::string("typed-") + type;
    const auto done = run("eagle3", out, {"--draft-type", type, "--draft-vocab", "64"});
    ASSERT_TRUE(done.ok()) << done.status().message();
    const auto config = read_json(path(out) + "/best/config.json");
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ((*config)["draft_type"], type);
    const auto report = read_json(path(out) + "/report.json");
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_THAT((*report)["speculate"].get<std::string>(),
                HasSubstr(std::string("draft_type=") + type));
  }
  EXPECT_NE(values("typed-q4_0"), values("typed-q8_0"));
  const auto refused = run("medusa2", "typed-target", {"--draft-type", "q4_0"}).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("makes another target"));
}

// With no word about its shape, as somebody shipped it: in 8 bits, with a type to draft in.
TEST_F(Command, ContinuesAHeadAsItIs) {
  for (const auto& [method, shape] :
       {std::pair<std::string, std::vector<std::string>>{"eagle3", {"--fc-norm"}},
        {"p-eagle", {"--layers", "2", "--fc-norm"}}}) {
    SCOPED_TRACE(method);
    std::vector<std::string> flags = {"--draft-vocab", "90",   "--intermediate",  "96",
                                      "--depth",       "3",    "--learning-rate", "3e-3",
                                      "--tap-layers",  "1,3,5"};
    flags.insert(flags.end(), shape.begin(), shape.end());
    ASSERT_TRUE(run(method, method + "-old", flags).ok());
    const std::string old = path(method + "-old/final"), head = path(method + "-head");
    std::filesystem::create_directories(head);
    const auto written = write_quantized_folder(old, head, DType::kQ8_0);
    ASSERT_TRUE(written.ok()) << written.status().message();
    Json config = *read_json(head + "/config.json");
    config["draft_type"] = "q8_0";
    ASSERT_TRUE(write_file(head + "/config.json", config.dump()).ok());

    const auto status = run(method, method + "-new", {"--continue", head});
    ASSERT_TRUE(status.ok()) << status.status().message();
    const Json now = *read_json(path(method + "-new/final/config.json"));
    for (const char* key :
         {"draft_vocab_size", "draft_type", "fc_norm", "mask_token_id",
          "eagle_aux_hidden_state_layer_ids", "transformer_layer_config", "speculators_config"}) {
      EXPECT_EQ(now.value(key, Json()), config.value(key, Json())) << key;
    }
    // It begins where the other ended, but for the bits that were lost.
    const auto losses = [&](const std::string& folder) {
      std::vector<double> out;
      const auto log = RunLog::open(folder + "/log.jsonl", 100);
      for (const Json& line : log->lines()) {
        if (line.contains("evaluation")) out.push_back(line["evaluation"]["loss"].get<double>());
      }
      return out;
    };
    const std::vector<double> before = losses(path(method + "-old"));
    const std::vector<double> after = losses(path(method + "-new"));
    ASSERT_EQ(after.size(), 2U);
    EXPECT_NEAR(after[0], before.back(), 0.02 * before.back());
    EXPECT_NE(after[1], after[0]);
  }
  // In 4 bits its matrices are read as well.
  const std::string packed = path("eagle3-packed");
  ASSERT_TRUE(write_quantized_folder(path("eagle3-old/final"), packed, DType::kQ4_0).ok());
  const auto from_packed = run("eagle3", "eagle3-from-packed", {"--continue", packed});
  EXPECT_TRUE(from_packed.ok()) << from_packed.status().message();
  const auto both = run("eagle3", "both", {"--continue", path("eagle3-head"), "--init", "x"});
  EXPECT_THAT(both.status().message(), HasSubstr("--init"));
  const auto none = run("eagle3", "none", {"--continue", path("first")});
  EXPECT_THAT(none.status().message(), HasSubstr("first"));
}

// Sums in 16 bits are no training.
TEST_F(Command, MultipliesIn16BitsWhereSumsAreFloats) {
  const auto losses = [](const std::string& precision) {
    EXPECT_TRUE(run("medusa", precision, {"--precision", precision, "--log-steps", "1"}).ok());
    const auto log = RunLog::open(path(precision) + "/log.jsonl", 100);
    std::vector<double> all;
    for (const Json& line : log->lines()) {
      if (line.contains("loss")) all.push_back(line["loss"].get<double>());
    }
    return all;
  };
  const std::vector<double> floats = losses("float"), bfloats = losses("bf16");
  ASSERT_FALSE(floats.empty());
  EXPECT_EQ(floats != bfloats, adds_bfloats_exactly(at::kCPU));
}

TEST_F(Command, SaysWhatIsWrong) {
  const auto refused = [&](const std::vector<std::string>& more, int steps,
                           const std::string& word) {
    const auto status = run("medusa", "wrong", more, steps);
    ASSERT_FALSE(status.ok()) << word;
    EXPECT_THAT(status.status().message(), HasSubstr(word));
  };
  refused({}, 0, "--steps, --epochs and --time");
  refused({"--time", "2h"}, 2, "--steps, --epochs and --time");
  refused({"--time", "soon"}, 0, "90s, 30m, 2h");
  refused({"--decay", "sudden"}, 2, "--decay sudden");
  refused({"--device", "abacus"}, 2, "--device abacus");
  refused({"--learning-rate", "-1"}, 2, "--learning-rate");
  refused({"--features", "stored"}, 2, "features");
  refused({"--world", "2", "--rank", "5"}, 2, "--rank 5");
  refused({"--loss", "anger"}, 2, "anger");
}

TEST_F(Command, RefusesSamplesOfAnotherModel) {
  write_model("stranger.gguf", 3);
  DataOptions options = data_options();
  options.model = path("stranger.gguf");
  const auto data = TrainingData::open(options);
  EXPECT_EQ(data.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(data.status().message(), HasSubstr("its own target"));
}

TEST_F(Command, TimesAreReadAsPeopleWriteThem) {
  EXPECT_EQ(*parse_duration("--time", "90"), 90.0);
  EXPECT_EQ(*parse_duration("--time", "90s"), 90.0);
  EXPECT_EQ(*parse_duration("--time", "30m"), 1800.0);
  EXPECT_EQ(*parse_duration("--time", "1.5h"), 5400.0);
  for (const char* text : {"", "h", "-1m", "0s", "3d", "1h30m", "nan", "inf"}) {
    EXPECT_FALSE(parse_duration("--time", text).ok()) << text;
  }
}

TEST_F(Command, FoldersAreOneSetOfSamples) {
  const auto both = open(data_options());
  size_t samples = 0;
  for (const Dataset& dataset : both->datasets()) samples += dataset.samples.size();
  EXPECT_EQ(both->set().training.size() + both->set().validation.size(), samples);
  EXPECT_FALSE(both->set().validation.empty());

  DataOptions one = data_options();
  one.folders.pop_back();
  DataOptions all = data_options();
  all.held_out = 0.0;
  EXPECT_EQ(open(data_options())->fingerprint(), both->fingerprint());
  EXPECT_NE(open(one)->fingerprint(), both->fingerprint());
  EXPECT_NE(open(all)->fingerprint(), both->fingerprint());
  EXPECT_TRUE(open(all)->set().validation.empty());

  const std::vector<int64_t> counts = both->token_counts(aerie::test::kByteVocab);
  int64_t generated = 0;
  for (const Dataset& dataset : both->datasets()) generated += dataset.generated;
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), generated);
  // A prompt is a few tokens of template at least; a sample cut before its reply teaches nothing.
  DataOptions cut = data_options();
  cut.max_length = 2;
  EXPECT_TRUE(open(cut)->set().training.empty());
}

TEST_F(Command, PromptsAreWhatHeldOutSamplesBeginWith) {
  const auto data = open(data_options());
  const auto prompts = data->held_out_prompts(1 << 20);
  ASSERT_FALSE(prompts.empty());
  EXPECT_LE(prompts.size(), data->set().validation.size());
  for (const auto& prompt : prompts) {
    const bool found = std::any_of(
        data->set().validation.begin(), data->set().validation.end(), [&](const Sample* sample) {
          return prompt.size() < sample->tokens.size() &&
                 std::equal(prompt.begin(), prompt.end(), sample->tokens.begin()) &&
                 sample->mask[prompt.size()] == 1 && sample->mask[prompt.size() - 1] == 0;
        });
    EXPECT_TRUE(found);
  }
  EXPECT_EQ(data->held_out_prompts(2).size(), 2U);
}

// From files in one folder, from the model in the other: the same up to bfloat16.
TEST_F(Command, FeaturesComeFromWhereTheyAre) {
  const MethodNeeds needs = {{2, 4}, true};
  auto computed = open(data_options());
  ASSERT_TRUE(computed->open_features(needs, 6).ok());
  StoreOptions store;
  store.folder = path("second");
  store.model = path("target.gguf");
  store.tap_layers = {2, 4, 6};
  store.threads = 1;
  ASSERT_TRUE(store_features(store).ok());
  auto mixed = open(data_options());
  const Status status = mixed->open_features(needs, 6);
  ASSERT_TRUE(status.ok()) << status.message();

  for (const bool second : {false, true}) {
    const auto find = [&](const TrainingData& data) {
      return &data.datasets()[second ? 1 : 0].samples.front();
    };
    const Sample* const a = find(*computed);
    std::vector<float> x(a->tokens.size() * 3 * 64), y(x.size());
    ASSERT_TRUE(computed->set().features->read(*a, x).ok());
    ASSERT_TRUE(mixed->set().features->read(*find(*mixed), y).ok());
    bool same = true;
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_NEAR(x[i], y[i], std::abs(x[i]) / 128.0 + 1e-6);
      same = same && x[i] == y[i];
    }
    EXPECT_EQ(same, !second);
  }
  ASSERT_TRUE(remove_features(path("second")).ok());
}

// Of some samples they are stored, of the others computed.
TEST_F(Command, FeaturesOfAFolderMayBeIncomplete) {
  const MethodNeeds needs = {{2, 4}, true};
  StoreOptions store;
  store.folder = path("second");
  store.model = path("target.gguf");
  store.tap_layers = {2, 4, 6};
  store.threads = 1;
  store.file_bytes = 40000;
  ASSERT_TRUE(store_features(store).ok());
  std::filesystem::remove(path("second/features-1-of-1-000.safetensors"));
  ASSERT_TRUE(std::filesystem::exists(path("second/features-1-of-1-001.safetensors")));
  const auto data = open(data_options());
  const Status status = data->open_features(needs, 6);
  ASSERT_TRUE(status.ok()) << status.message();
  int exact = 0, rounded = 0;
  for (const Sample& sample : data->datasets()[1].samples) {
    std::vector<float> x(sample.tokens.size() * 3 * 64);
    ASSERT_TRUE(data->set().features->read(sample, x).ok()) << sample.id;
    const bool fits = std::ranges::all_of(
        x, [](float value) { return bf16_to_f32(f32_to_bf16(value)) == value; });
    ++(fits ? rounded : exact);
  }
  EXPECT_GT(exact, 0);
  EXPECT_GT(rounded, 0);
  DataOptions stored = data_options();
  stored.folders = {path("second")};
  stored.features = DataOptions::Features::kStored;
  const auto strict = open(stored);
  ASSERT_TRUE(strict->open_features(needs, 6).ok());
  std::vector<float> x(strict->datasets()[0].samples[0].tokens.size() * 3 * 64);
  EXPECT_EQ(strict->set().features->read(strict->datasets()[0].samples[0], x).code(),
            StatusCode::kNotFound);
  ASSERT_TRUE(remove_features(path("second")).ok());
}

TEST_F(Command, AcceptanceIsCountedFromRounds) {
  AcceptanceOptions options;
  options.engine.model = path("target.gguf");
  options.engine.threads = 1;
  EXPECT_EQ(measure_acceptance(options, {}).status().code(), StatusCode::kInvalidArgument);
  options.prompts = open(data_options())->held_out_prompts(4);
  options.max_tokens = 40;
  const auto config = draft_config("ngram:num_speculative_tokens=3", "unused");
  ASSERT_TRUE(config.ok());
  const auto acceptance = measure_acceptance(options, *config);
  ASSERT_TRUE(acceptance.ok()) << acceptance.status().message();
  EXPECT_EQ(acceptance->replies, static_cast<int>(options.prompts.size()));
  EXPECT_GT(acceptance->rounds, 0);
  EXPECT_GT(acceptance->accepted, 0);  // a tiny model loops
  // A round emits what it accepts and one token more, but for the last one of a reply.
  const double rounds = static_cast<double>(acceptance->rounds);
  EXPECT_NEAR(acceptance->tau, 1.0 + static_cast<double>(acceptance->accepted) / rounds,
              acceptance->replies / rounds);
  const double sum =
      std::accumulate(acceptance->per_position.begin(), acceptance->per_position.end(), 0.0);
  EXPECT_NEAR(sum * rounds, static_cast<double>(acceptance->accepted), 1e-6);
  EXPECT_LE(acceptance->per_position.size(), 3U);

  std::atomic<bool> cancel{true};
  options.cancel = &cancel;
  EXPECT_EQ(measure_acceptance(options, *config).status().code(), StatusCode::kCancelled);
}

}  // namespace aerie::train::command_test

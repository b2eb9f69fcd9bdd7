// A training method of one's own, whole in this file: it is described, registered, trained as
// `aerie train` has it and drafted with, and nothing in train/ knows of it. docs/adding.md walks
// through it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/train/data/data_folder.h"
#include "train/command/train_command.h"
#include "train/methods/supervision.h"
#include "train/methods/training_methods.h"
#include "train/nn/ops.h"
#include "train/run/checkpoint_files.h"
#include "train/run/evaluate.h"
#include "train/run/run_log.h"
#include "train/speedup/speedup_head.h"

namespace aerie::train::added_method_test {

// --- The method ---------------------------------------------------------------------------------

extern const TrainingMethod kProbeTraining;

struct ProbeOptions {
  double smoothing = 0.0;  // of labels
};

// Reads the token after the next one off the target's last state with one matrix, which begins as
// the target's own. That is Medusa with a single head whose block does nothing, and stored so.
class Probe final : public Method {
 public:
  static Expected<std::unique_ptr<Method>> make(Target& target, const ProbeOptions& options) {
    auto probe = std::make_unique<Probe>();
    AERIE_ASSIGN_OR_RETURN(probe->norm_, target.final_norm());
    AERIE_ASSIGN_OR_RETURN(const at::Tensor output, target.output());
    const int64_t hidden = output.size(1);
    probe->output_ = probe->parameters_.add("0.1.weight", output.clone());
    probe->parameters_.add_fixed("0.0.linear.weight", at::zeros({hidden, hidden}));
    probe->parameters_.add_fixed("0.0.linear.bias", at::zeros({hidden}));
    probe->eps_ = target.norm_eps();
    probe->options_ = options;
    return std::unique_ptr<Method>(std::move(probe));
  }

  const MethodNeeds& needs() const override { return needs_; }
  Parameters& parameters() override { return parameters_; }
  double weight(const Batch& batch) const override {
    return supervised_rows(batch, 0).sum().item<double>();
  }
  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& /*generator*/,
                               bool train) override {
    const at::Tensor rows = places_of(supervised_rows(batch, 0));
    const at::Tensor states = rms_norm(batch.last.index_select(0, rows), norm_, eps_);
    const at::Tensor labels = batch.tokens.index_select(0, rows + 2);
    const at::Tensor loss =
        at::cross_entropy_loss(at::linear(states, output_), labels, {}, at::Reduction::Sum,
                               /*ignore_index=*/-100, options_.smoothing);
    if (train) (loss * scale).backward();
    Figures figures;
    figures.weight = static_cast<double>(rows.size(0));
    figures.add("loss", loss.item<double>());
    return figures;
  }
  Status write(const std::string& folder) const override {
    return write_checkpoint(folder, stored_parameters(parameters_, false),
                            {{"medusa_num_heads", 1}, {"medusa_num_layers", 1}});
  }
  DraftSettings settings() const override { return DraftSettings::of(kProbeTraining.drafter, 1); }

 private:
  MethodNeeds needs_ = {{}, true};  // no taps, the stream behind the last layer
  Parameters parameters_;
  ProbeOptions options_;
  at::Tensor norm_, output_;
  double eps_ = 0.0;
};

MakeMethod declare_probe(SettingList& settings) {
  const auto options = std::make_shared<ProbeOptions>();
  settings.add("smoothing", options->smoothing, {0, 1}, "Share of a label that all tokens have");
  return [options](const MethodInputs& inputs) { return Probe::make(inputs.target, *options); };
}

const TrainingMethod kProbeTraining = {
    .name = "probe",
    .what = "A matrix that reads the token after the next one",
    .drafter = "medusa",
    .schedule = {.rate = 3e-2, .warmup = 0.1},
    .declare = declare_probe,
};

// --- What comes with it -------------------------------------------------------------------------

using test::Scratch;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AddedMethod : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const Status added = add_training_method(kProbeTraining);
    ASSERT_TRUE(added.ok()) << added.message();
    scratch_ = std::make_unique<Scratch>();
    test::write_target(*scratch_);
    test::generate(test::options_for(*scratch_, path("target.gguf"),
                                     {test::write_prompts(*scratch_, "prompts.jsonl", 24)}));
  }
  static void TearDownTestSuite() { scratch_.reset(); }

  static std::string path(const std::string& name) { return scratch_->path(name); }

  static Expected<int> run(const std::string& more) {
    const std::string typed = fmt::format(
        "probe -m {} --data {} --out {} --steps 60 --batch-tokens 300 --eval-steps 20 "
        "--eval-prompts 3 --eval-tokens 12 --threads 1 {}",
        path("target.gguf"), path("out"), path("run"), more);
    CLI::App app;
    const auto command = add_train_commands(app);
    try {
      app.parse(typed);
    } catch (const CLI::ParseError& error) {
      return Status(StatusCode::kInvalidArgument, error.what());
    }
    return command("aerie train " + typed);
  }

  static std::unique_ptr<Scratch> scratch_;
};
std::unique_ptr<Scratch> AddedMethod::scratch_;

TEST_F(AddedMethod, IsACommandAsAllOthersAre) {
  CLI::App app;
  add_train_commands(app);
  EXPECT_THAT(app.help(), HasSubstr(kProbeTraining.what));
  const std::string help = app.get_subcommand("probe")->help();
  EXPECT_THAT(help, HasSubstr("--smoothing FLOAT:FLOAT in [0 - 1]=0"));
  EXPECT_THAT(help, HasSubstr("Share of a label that all tokens have"));
  EXPECT_THAT(help, HasSubstr("--learning-rate FLOAT=0.03"));
  EXPECT_THAT(run("--smoothing 2").status().message(), HasSubstr("--smoothing"));
  EXPECT_THAT(run("--draft-vocab 9").status().message(), HasSubstr("--draft-vocab"));
  // It says nothing of `aerie speedup`, which does not train by it then.
  EXPECT_THAT(parse_speedup_method("probe").status().message(),
              HasSubstr("auto, eagle3 and p-eagle are known"));
}

TEST_F(AddedMethod, TrainsWhatTheEngineDraftsWith) {
  const auto status = run("--smoothing 0.05");
  ASSERT_TRUE(status.ok()) << status.status().message();
  const auto log = RunLog::open(path("run/log.jsonl"), 100);
  ASSERT_TRUE(log.ok()) << log.status().message();
  ASSERT_TRUE(log->lines().back().contains("evaluation"));
  EXPECT_GT(log->lines().back()["evaluation"]["tau"].get<double>(), 1.5);
  EXPECT_THAT(
      test::read_file(path("run/final/README.md")),
      AllOf(HasSubstr("# probe for"), HasSubstr("aerie train probe -m "),
            HasSubstr("'medusa:model=FOLDER,num_speculative_tokens=1'"), HasSubstr("τ = ")));
  const auto config = read_json(path("run/config.json"));
  ASSERT_TRUE(config.ok());
  EXPECT_EQ((*config)["method"], "probe");
  EXPECT_EQ((*config)["options"]["--smoothing"], "0.05");

  // The same command goes on, another one does not.
  EXPECT_TRUE(run("--smoothing 0.05").ok());
  EXPECT_THAT(run("").status().message(), HasSubstr("--smoothing is 0.05 there"));

  AcceptanceOptions options;
  options.engine.model = path("target.gguf");
  options.engine.threads = 1;
  options.prompts.push_back({72, 105});
  options.max_tokens = 24;
  const auto drafts = draft_config("medusa:model={}", path("run/final"));
  ASSERT_TRUE(drafts.ok()) << drafts.status().message();
  const auto acceptance = measure_acceptance(options, *drafts);
  ASSERT_TRUE(acceptance.ok()) << acceptance.status().message();
  EXPECT_GT(acceptance->drafted, 0);
  EXPECT_GT(acceptance->accepted, 0);
}

TEST_F(AddedMethod, IsRefusedIfItCannotBeNamedOrMade) {
  const auto refusal = [](TrainingMethod method) { return add_training_method(method).message(); };
  EXPECT_THAT(refusal(kProbeTraining), HasSubstr("'probe': there is one of that name"));
  TrainingMethod other = kProbeTraining;
  for (const char* name : {"data", "speedup", "auto"}) {
    other.name = name;
    EXPECT_THAT(refusal(other), HasSubstr("means something else"));
  }
  for (const char* name : {"", "-x", "a b", "a=b"}) {
    other.name = name;
    EXPECT_THAT(refusal(other), HasSubstr("cannot be typed"));
  }
  other.name = "other";
  other.declare = nullptr;
  EXPECT_THAT(refusal(other), HasSubstr("declare()"));
}

}  // namespace aerie::train::added_method_test

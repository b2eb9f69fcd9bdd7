#include "train/run/model_card.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>

#include "draft/speculative_config.h"
#include "train/batches/gather.h"
#include "train/data/duration_text.h"
#include "train/run/evaluate.h"
#include "train/run/shell_text.h"

namespace aerie::train {
namespace {

// A drafted token that fewer rounds accept costs more than it brings: each one lengthens the pass.
constexpr double kWorthDrafting = 0.1;

std::string today() {
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
}

std::string data_section(const CardFacts& facts) {
  std::string text = fmt::format(
      "## Data\n\n{} samples to train on, {} held out. Replies are the base model's own.\n\n"
      "| folder | samples | tokens | generated | prompts |\n| --- | ---: | ---: | ---: | --- |\n",
      facts.training_samples, facts.validation_samples);
  for (size_t i = 0; i < facts.folders.size(); ++i) {
    const Dataset& dataset = (*facts.datasets)[i];
    std::vector<std::string> files;
    for (const PromptFile& file : dataset.info.prompts) files.push_back(file.name);
    text += fmt::format("| {} | {} | {} | {} | {} |\n", facts.folders[i], dataset.samples.size(),
                        dataset.tokens, dataset.generated, fmt::join(files, ", "));
  }
  text += "\n";
  text += facts.data_notes.empty()
              ? "Nothing was said about origin and licences of the prompts (--data-notes).\n"
              : facts.data_notes + (facts.data_notes.ends_with('\n') ? "" : "\n");
  return text;
}

std::string measurement_section(const CardFacts& facts, const Evaluation& evaluation) {
  std::string text = "## Measured\n\n";
  if (evaluation.figures.weight > 0.0) {
    text +=
        fmt::format("Loss on held-out samples: {:.4f}\n\n", mean_of(evaluation.figures, "loss"));
  }
  if (!evaluation.acceptance) return text + "Acceptance was not measured.\n";
  const Acceptance& a = *evaluation.acceptance;
  text += fmt::format(
      "Mean accepted length τ = {:.3f} (tokens for each pass of the base model, its own token "
      "counted) over {} passes, in {} replies of at most {} tokens to held-out prompts at "
      "temperature {}, exact verification.\n\n",
      a.tau, a.rounds, a.replies, facts.eval_tokens, facts.eval_temperature);
  text += "| drafted token | accepted, of all rounds |\n| ---: | ---: |\n";
  for (size_t i = 0; i < a.per_position.size(); ++i) {
    text += fmt::format("| {} | {:.3f} |\n", i + 1, a.per_position[i]);
  }
  return text;
}

// How the drafter is to be run: with as many tokens as were worth drafting, at least one;
// `accepted` of all rounds by depth, empty where that was not measured. `note` says if these are
// fewer than it was trained for.
std::string recommended(const std::string& speculate, const std::vector<double>& accepted,
                        std::string& note) {
  auto config = parse_speculative_spec(speculate);
  if (!config.ok()) return speculate;
  const auto first = std::ranges::find_if(accepted, [](double s) { return s < kWorthDrafting; });
  const int worth = std::max(1, static_cast<int>(first - accepted.begin()));
  const int trained = config->tokens();
  if (first == accepted.end() || worth >= trained) return speculate;
  config->set_tokens(worth);
  note = fmt::format(
      "It was trained to draft {} tokens in a round. Those behind number {} were accepted in fewer "
      "than {:.0f} % of the measured rounds, and every drafted token makes the pass longer.\n\n",
      trained, worth, 100.0 * kWorthDrafting);
  return to_string(*config);
}

std::string_view name_of(TrainEnd end) {
  switch (end) {
    case TrainEnd::kDone:
      return "done";
    case TrainEnd::kStoppedEarly:
      return "stopped early";
    case TrainEnd::kInterrupted:
      break;
  }
  return "interrupted";
}

// The figures of the evaluation after a step; null: there was none.
Json evaluation_at(const std::vector<Json>& log, int64_t step) {
  for (const Json& line : log) {
    if (line.contains("evaluation") && line.value("step", int64_t{-1}) == step) {
      return line["evaluation"];
    }
  }
  return nullptr;
}

// What is to be known of the best checkpoint.
void add_head(const CardFacts& facts, const std::string& head, Json& report) {
  const Json& best = report["best"];
  const auto accepted = best.find("acceptance");
  // By depth; a method may have a figure of that name itself.
  const bool measured = accepted != best.end() && accepted->is_array();
  std::string note;
  std::string speculate =
      recommended(facts.speculate,
                  measured ? accepted->get<std::vector<double>>() : std::vector<double>(), note);
  if (const auto config = draft_config(speculate, head); config.ok()) {
    speculate = to_string(*config);
  }
  const std::string model =
      facts.own_model.empty() ? facts.base_model_path : in_folder(facts.own_model, head);
  report["head"] = head;
  report["model"] = model;
  report["speculate"] = speculate;
  report["commands"] = Json::array({fmt::format("aerie run -m {} --speculate {} -p 'Hello'",
                                                shell_word(model), shell_word(speculate))});
}

}  // namespace

std::string model_card(const CardFacts& facts, const RunState& state,
                       const Evaluation& evaluation) {
  std::string note;
  const std::vector<double> accepted =
      evaluation.acceptance ? evaluation.acceptance->per_position : std::vector<double>();
  std::string speculate = recommended(facts.speculate, accepted, note);
  if (const size_t at = speculate.find("{}"); at != std::string::npos) {
    speculate.replace(at, 2, "FOLDER");
  }
  const std::string own = in_folder(facts.own_model, "FOLDER");
  std::string text =
      fmt::format("---\nbase_model: {}\ntags: [speculative-decoding, {}]\n---\n\n# {} for {}\n\n",
                  facts.base_model, facts.method, facts.method, facts.base_model);
  text += own.empty() ? fmt::format(
                            "A drafter for speculative decoding, of {:.2f} million trained "
                            "parameters. `{}` is the only model that it drafts for.",
                            static_cast<double>(facts.parameters) / 1e6, facts.base_model)
                      : fmt::format(
                            "`{}`, trained on ({:.2f} million parameters) so that it can be "
                            "drafted for. It is another model than it was, and says other things.",
                            facts.base_model, static_cast<double>(facts.parameters) / 1e6);
  text += fmt::format(
      " FOLDER being this folder:\n\n```\naerie run -m {} --speculate '{}' -p "
      "'Hello'\n```\n\n",
      own.empty() ? facts.base_model_path : own, speculate);
  text += note + measurement_section(facts, evaluation) + "\n" + data_section(facts);
  text += fmt::format("\n## Training\n\n```\n{}\n```\n\n{} steps, {} tokens, {}; {}. {}.\n",
                      facts.command, state.step, state.rows, duration_text(state.seconds),
                      facts.processor, today());
  return text;
}

std::string run_report(const CardFacts& facts, const std::string& folder, const TrainResult& result,
                       const std::vector<Json>& log) {
  const RunState& state = result.state;
  Json report = {{"method", facts.method},
                 {"target", facts.base_model_path},
                 {"end", name_of(result.end)},
                 {"parameters", facts.parameters},
                 {"samples", facts.training_samples},
                 {"held_out", facts.validation_samples},
                 {"steps", state.step},
                 {"tokens", state.rows},
                 {"seconds", state.seconds},
                 {"best", evaluation_at(log, state.best_step)}};
  if (!report["best"].is_null()) {
    report["best_step"] = state.best_step;
    add_head(facts, folder + "/best", report);
  }
  // Names of files need not be UTF-8.
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace aerie::train

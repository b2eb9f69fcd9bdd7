#include "train/command/data_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "base/standard_streams.h"
#include "engine/placement/device_choice.h"
#include "train/data/duration_text.h"
#include "train/data/features/feature_store.h"
#include "train/data/generate_data.h"

namespace aerie::train {
namespace {

// What is parsed as text first.
struct DataFlags {
  GenerateOptions options;
  std::vector<std::string> where;
  std::string shard = "1/1";
  bool no_template = false;
  std::vector<int32_t> features;
};

std::string summary(const GenerateResult& result) {
  const AnswerCounts& counts = result.counts;
  std::string text =
      fmt::format("{} samples were there, {} were made", result.there, counts.samples);
  if (counts.samples > 0) {
    text += fmt::format(": {} tokens in {} ({:.0f} tokens/s), {} of prompts", counts.tokens,
                        duration_text(result.seconds),
                        static_cast<double>(counts.tokens) / result.seconds, counts.prompt_tokens);
  }
  if (counts.too_long > 0) {
    text += fmt::format("; {} have none, their prompts are too long for the context (--context)",
                        counts.too_long);
  }
  if (counts.turns_left_out > 0) {
    text += fmt::format("; {} later turns left out for want of context", counts.turns_left_out);
  }
  if (result.missing > 0) {
    text += fmt::format("; {} are still to be made: the same command goes on", result.missing);
  }
  return text;
}

std::string summary(const StoreResult& result) {
  std::string text = fmt::format("features of {} samples were there, of {} were stored ({} bytes)",
                                 result.there, result.stored, result.bytes);
  if (result.missing > 0) {
    text += fmt::format("; {} are still without: the same command goes on", result.missing);
  }
  return text;
}

Status add_features(const DataFlags& flags) {
  StoreOptions options;
  options.folder = flags.options.out;
  options.model = flags.options.target.model;
  options.tap_layers = flags.features;
  options.threads = flags.options.target.threads;
  options.device = flags.options.target.device;
  options.shard = flags.options.shard;
  options.cancel = &interrupted;
  AERIE_ASSIGN_OR_RETURN(const StoreResult result, store_features(options));
  print_message("{}\n", summary(result));
  return {};
}

Expected<int> run(DataFlags& flags) {
  GenerateOptions& options = flags.options;
  if (options.prompts.empty() && flags.features.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "there is nothing to do: give --prompts FILE... for samples, --features "
                  "LAYER,... for features of those that are there, or both");
  }
  options.use_template = !flags.no_template;
  AERIE_ASSIGN_OR_RETURN(options.target.device, aerie::parse_device(options.target.device));
  AERIE_ASSIGN_OR_RETURN(options.shard, parse_shard(flags.shard));
  for (const std::string& text : flags.where) {
    auto range = parse_prompt_range(text);
    if (!range.ok()) return range.status().with_context("--where");
    options.selection.where.push_back(std::move(*range));
  }
  catch_interrupts();
  options.cancel = &interrupted;
  options.features = flags.features;
  if (!options.prompts.empty()) {
    AERIE_ASSIGN_OR_RETURN(const GenerateResult result, generate_data(options));
    print_message("{}\n", summary(result));
  }
  if (!flags.features.empty() && !interrupted.load()) {
    AERIE_RETURN_IF_ERROR(add_features(flags));
  }
  return interrupted.load() ? 130 : 0;
}

void add_prompt_flags(CLI::App& app, DataFlags& flags) {
  GenerateOptions& o = flags.options;
  app.add_option("--prompts", o.prompts,
                 "Files of prompts, JSON lines with 'turns', 'messages', 'prompt', 'question' or "
                 "'text'");
  app.add_option(
      "--plain", o.plain,
      "Those of the files whose 'prompt's are texts to go on with, without the template");
  app.add_option("--where", flags.where,
                 "KEY=FIRST..LAST: leave out lines whose KEY is another number; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--limit", o.selection.limit, "Only the first so many prompts of each file")
      ->check(CLI::Range(0, 1 << 30));
  app.add_option("--shard", flags.shard, "PART/OF: only this machine's part of the prompts")
      ->capture_default_str();
  app.add_flag("--no-template", flags.no_template,
               "All prompts are texts to go on with: apply no chat template");
}

}  // namespace

std::function<Expected<int>()> add_data_flags(CLI::App& app) {
  auto flags = std::make_shared<DataFlags>();
  GenerateOptions& o = flags->options;
  o.target.sequences = GenerateOptions::kDefaultBatch;
  app.add_option("-m,--model", o.target.model, "A GGUF file or a Hugging Face folder")->required();
  add_prompt_flags(app, *flags);
  app.add_option("--out", o.out, "The folder for the samples; a run goes on with what is there")
      ->required();
  app.add_option("-n,--max-tokens", o.settings.max_tokens, "Tokens of a reply, at most")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 26));
  app.add_option("--temperature", o.settings.temperatures,
                 "Temperatures, separated by commas, for the prompts by turns")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  app.add_option("--samples", o.samples, "Replies to each prompt")->capture_default_str();
  app.add_option("--seed", o.settings.seed, "Of all samples")->capture_default_str();
  app.add_option("--held-out", o.held_out, "The fraction of prompts that validates")
      ->capture_default_str();
  app.add_option("--features", flags->features,
                 "Store features of these layers, separated by commas, for all samples there: the "
                 "streams that enter them; the number of layers: the one behind the last")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--device", o.target.device, fmt::format("Who answers: {}", kDeviceChoices))
      ->capture_default_str();
  app.add_option("--engines", o.engines,
                 "So many answer beside one another, each with a batch and the model for itself: "
                 "what keeps a GPU busy")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--batch", o.target.sequences, "Samples at a time, of each engine")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--context", o.target.context,
                 "Tokens of a sample (default: the model's, at most 2048)")
      ->check(CLI::Range(2, 1 << 26));
  app.add_option("--threads", o.target.threads, "Threads (default: one for each performance core)")
      ->check(CLI::Range(1, 1024));
  return [flags] { return run(*flags); };
}

}  // namespace aerie::train

#include "train/data/generate_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/clock.h"
#include "base/progress.h"
#include "base/system/topology.h"
#include "format/text.h"
#include "train/data/engines.h"
#include "train/data/features/feature_writer.h"
#include "train/data/features/features.h"
#include "train/data/info.h"

namespace aerie::train {
namespace {

namespace fs = std::filesystem;

Status check(const GenerateOptions& options) {
  const auto refuse = [](std::string why) {
    return Status(StatusCode::kInvalidArgument, std::move(why));
  };
  if (options.samples < 1) {
    return refuse(fmt::format("--samples {}: give at least 1", options.samples));
  }
  if (!(options.held_out >= 0.0 && options.held_out < 1.0)) {
    return refuse(fmt::format("--held-out {}: give 0 to below 1", options.held_out));
  }
  if (options.engines < 1 || options.engines > 64) {
    return refuse(fmt::format("--engines {}: give 1 to 64", options.engines));
  }
  if (options.settings.max_tokens < 1) {
    return refuse(fmt::format("--max-tokens {}: give at least 1", options.settings.max_tokens));
  }
  if (options.settings.temperatures.empty()) {
    return refuse("there is no temperature: give --temperature at least one");
  }
  for (const std::string& path : options.plain) {
    if (std::ranges::find(options.prompts, path) != options.prompts.end()) continue;
    return refuse(fmt::format("--plain {}: it is not among the files of --prompts", path));
  }
  for (const double temperature : options.settings.temperatures) {
    if (temperature >= 0.0 && temperature <= 100.0) continue;
    return refuse(fmt::format("--temperature {}: give 0 to 100", temperature));
  }
  return {};
}

bool is_plain(const GenerateOptions& options, const std::string& path) {
  return std::ranges::find(options.plain, path) != options.plain.end();
}

// With names that are the same wherever the files lie, and `chat` for those that the template is
// for.
Expected<std::vector<Prompt>> read_prompts(const GenerateOptions& options) {
  PromptSelection selection = options.selection;
  selection.flag = "--prompts";
  AERIE_ASSIGN_OR_RETURN(std::vector<Prompt> prompts, read_prompts(options.prompts, selection));
  for (Prompt& prompt : prompts) {
    const std::string& path = options.prompts[static_cast<size_t>(prompt.file)];
    const size_t name = fs::path(path).filename().string().size();
    prompt.name.erase(0, path.size() - name);
    prompt.chat = options.use_template && (prompt.chat || !is_plain(options, path));
  }
  return prompts;
}

Expected<DataInfo> make_info(const GenerateOptions& options, const RunningTarget& target,
                             const ConversationFormat& format) {
  DataInfo info;
  const std::string& path = options.target.model;
  info.model =
      target.config().name.empty() ? fs::path(path).filename().string() : target.config().name;
  info.model = printable(info.model);
  info.fingerprint = model_fingerprint(*target.source().file);
  info.vocab = target.config().vocab;
  info.chat = format.example();
  info.context = target.options().context;
  info.settings = options.settings;
  info.held_out = options.held_out;
  for (const std::string& file : options.prompts) {
    AERIE_ASSIGN_OR_RETURN(info.prompts.emplace_back(), prompt_file(file));
    info.prompts.back().plain = is_plain(options, file);
  }
  return info;
}

// What answering stores beside the samples.
struct Features {
  std::optional<FeatureWriter> writer;

  Status open(const GenerateOptions& options, const RunningTarget& target,
              const std::string& fingerprint) {
    if (options.features.empty()) return {};
    const ModelConfig& config = target.config();
    for (const int32_t layer : options.features) AERIE_RETURN_IF_ERROR(check_tap(layer, config));
    AERIE_ASSIGN_OR_RETURN(FeatureWriter opened,
                           FeatureWriter::open(options.out, options.shard,
                                               {fingerprint, options.features, config.hidden}));
    writer.emplace(std::move(opened));
    return {};
  }
  Status add(const Sample& sample, std::vector<uint16_t> taps) {
    return writer ? writer->add(sample.id, std::move(taps)) : Status();
  }
  Status finish() { return writer ? writer->finish() : Status(); }
};

// By whatever shard they were made.
Expected<std::unordered_set<std::string>> ids_in(const std::string& folder, int vocab) {
  std::unordered_set<std::string> ids;
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string> paths, answer_files(folder));
  for (const std::string& path : paths) {
    AERIE_ASSIGN_OR_RETURN(const std::vector<Sample> samples, read_answers(path, vocab));
    for (const Sample& sample : samples) ids.insert(sample.id);
  }
  return ids;
}

// What the folder lacks of the shard.
std::vector<AnswerTask> missing_tasks(const GenerateOptions& options,
                                      const std::vector<Prompt>& prompts,
                                      const std::unordered_set<std::string>& there,
                                      GenerateResult& result) {
  std::vector<AnswerTask> tasks;
  for (int index = 0; index < options.samples; ++index) {
    for (const Prompt& prompt : prompts) {
      if (!options.shard.has(prompt.number)) continue;
      if (there.contains(sample_id(prompt.number, index))) {
        ++result.there;
      } else {
        tasks.push_back({&prompt, index});
      }
    }
  }
  return tasks;
}

// What one of several engines has of the threads.
int threads_of_each(const GenerateOptions& options) {
  if (options.engines == 1) return options.target.threads;
  const int all = options.target.threads > 0 ? options.target.threads : default_threads();
  return std::max(1, all / options.engines);
}

}  // namespace

Expected<GenerateResult> generate_data(const GenerateOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  AERIE_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, read_prompts(options));
  RunningTargetOptions target_options = options.target;
  target_options.max_taps = static_cast<int>(options.features.size());
  target_options.threads = threads_of_each(options);
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<RunningTarget> target,
                         RunningTarget::open(target_options));
  AERIE_ASSIGN_OR_RETURN(const ConversationFormat format,
                         ConversationFormat::make(target->source(), options.use_template));
  AERIE_ASSIGN_OR_RETURN(const DataInfo info, make_info(options, *target, format));
  AERIE_RETURN_IF_ERROR(claim_folder(options.out, info));
  AERIE_ASSIGN_OR_RETURN(AnswerFile file, AnswerFile::open(options.out, options.shard));
  AERIE_ASSIGN_OR_RETURN(const auto there, ids_in(options.out, info.vocab));
  Features features;
  AERIE_RETURN_IF_ERROR(features.open(options, *target, info.fingerprint));

  GenerateResult result;
  const std::vector<AnswerTask> tasks = missing_tasks(options, prompts, there, result);
  if (tasks.empty()) return result;
  AERIE_ASSIGN_OR_RETURN(Engines engines,
                         Engines::open(std::move(target), target_options, options.engines));
  const auto start = steady_now();
  Progress progress("samples", result.there + static_cast<int64_t>(tasks.size()));
  progress.skip(result.there);
  Engines::Calls calls;
  calls.done = [&](const Sample& sample, std::vector<uint16_t> taps) {
    AERIE_RETURN_IF_ERROR(file.append(sample));
    return features.add(sample, std::move(taps));
  };
  calls.progress = [&](const AnswerCounts& counts) {
    progress.set(int64_t{result.there} + counts.samples + counts.too_long);
  };
  calls.cancel = options.cancel;
  calls.tap_layers = options.features;
  AERIE_ASSIGN_OR_RETURN(result.counts, engines.answer(format, options.settings, tasks, calls));
  AERIE_RETURN_IF_ERROR(features.finish());
  result.seconds = seconds_since(start);
  result.missing = static_cast<int>(tasks.size()) - result.counts.samples - result.counts.too_long;
  return result;
}

}  // namespace aerie::train

// The program `aerie`: the one place that reads flags.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/flag_values.h"
#include "base/program.h"
#include "base/progress.h"
#include "base/standard_streams.h"
#include "engine/rank_setup.h"
#include "tools/ctl/ctl.h"
#include "tools/files/convert.h"
#include "tools/files/hub_commands.h"
#include "tools/files/inspect.h"
#include "tools/files/tokenize.h"
#include "tools/flags.h"
#include "tools/flags/their_command.h"
#include "tools/help/command_help.h"
#include "tools/help/completion.h"
#include "tools/hub_flags.h"
#include "tools/measure/audit_command.h"
#include "tools/measure/bench_command.h"
#include "tools/measure/doctor_command.h"
#include "tools/run/run.h"
#include "tools/serve/serve.h"
#include "tools/train.h"

namespace aerie {
namespace {

// A subcommand whose flags are parsed: gives the exit status.
using Run = std::function<Expected<int>()>;

Expected<int> exit_status(const Status& status) {
  if (!status.ok()) return status;
  return 0;
}

Run without_exit_status(std::function<Status()> run) {
  return [run = std::move(run)] { return exit_status(run()); };
}

Run add_run(CLI::App& app) {
  return [read = add_run_flags(app)]() -> Expected<int> {
    AERIE_ASSIGN_OR_RETURN(RunOptions options, read());
    AERIE_ASSIGN_OR_RETURN(
        const bool followed,
        join_ranks(options.engine.tensor_parallel, options.engine.model, options.engine.group));
    if (followed) return 0;
    return options.chat ? run_chat(options) : run_prompt(options);
  };
}

Run add_inspect(CLI::App& app) {
  struct Flags {
    InspectOptions options;
    ConvertOptions convert;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("MODEL", flags->convert.input,
                 "A GGUF file, a Hugging Face folder, or safetensors or PyTorch files")
      ->required();
  app.add_flag("--tensors", flags->options.tensors, "List every tensor");
  app.add_flag("--json", flags->options.json, "As JSON");
  app.add_option("--convert", flags->convert.output,
                 "Write it here instead, as `aerie convert` does");
  return [flags]() -> Expected<int> {
    if (!flags->convert.output.empty()) return exit_status(convert(flags->convert, std::cerr));
    std::ostringstream out;
    AERIE_RETURN_IF_ERROR(inspect(flags->convert.input, flags->options, out));
    print_output(out.view());
    return 0;
  };
}

Run add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeCommand>();
  app.add_option("-m,--model", options->model, kModelHelp)->required();
  CLI::Option* text = app.add_option("TEXT", options->text, "The text, or ids with --decode");
  app.add_option("--frequencies", options->frequencies,
                 "Files of text: the ids in them, the most frequent first")
      ->excludes(text);
  app.add_flag("--special", options->special, "Names of control tokens become them");
  app.add_flag("--add-special", options->add_special, "BOS and EOS as the model wants");
  app.add_flag("--ids", options->ids_only, "Only the ids");
  app.add_flag("--json", options->json, "As JSON");
  app.add_flag("--decode", options->decode, "The text is a list of ids");
  return [options, text]() -> Expected<int> {
    if (text->count() == 0 && options->frequencies.empty()) {
      return invalid_argument("there is nothing to tokenize: give TEXT or --frequencies FILE...");
    }
    std::ostringstream out;
    AERIE_RETURN_IF_ERROR(tokenize(*options, out));
    print_output(out.view());
    return 0;
  };
}

Run add_convert(CLI::App& app) {
  return [read = add_convert_flags(app)]() -> Expected<int> {
    AERIE_ASSIGN_OR_RETURN(const ConvertOptions options, read());
    return exit_status(convert(options, std::cerr));
  };
}

// When progress is shown first, in seconds.
constexpr const char* kProgressDelay = "AERIE_PROGRESS_AFTER";

// The program aerie-train reads its flags itself. `arguments`: its argv.
Run add_train(CLI::App& app, char** arguments) {
  app.prefix_command();
  app.set_help_flag();
  app.set_help_all_flag();
  return [arguments] { return exit_status(run_train(arguments)); };
}

// Of what was parsed: whether a flag says that nobody wants to see how far it is.
bool is_quiet(const CLI::App& app) {
  const CLI::Option* const quiet = app.get_option_no_throw("--quiet");
  if (quiet != nullptr && quiet->count() > 0) return true;
  const CLI::Option* const json = app.get_option_no_throw("--json");
  if (json != nullptr && json->count() > 0 && json->results().front() == "-") return true;
  return std::ranges::any_of(app.get_subcommands(),
                             [](const CLI::App* one) { return is_quiet(*one); });
}

// The log of `serve` is JSON, which lines of progress would not be.
ProgressStyle progress_style(const CLI::App& app) {
  const ProgressStyle style = fitting_progress_style();
  if (is_quiet(app)) return ProgressStyle::kNone;
  return style == ProgressStyle::kLog && app.got_subcommand("serve") ? ProgressStyle::kNone : style;
}

// The command line with flags of other programs in our words (tools/flags/their_command.h).
struct CommandLine {
  std::vector<std::string> words;
  std::vector<std::string> notes;

  std::vector<char*> argv() {
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return pointers;
  }
};

// What a command takes of theirs; of those without a counterpart, the names of models alone.
std::span<const TheirFlag> flags_for(const std::string& path) {
  if (path == "bench serve") return their_bench_flags();
  if (path == "serve" || path == "run") return their_flags();
  return their_model_names();
}

Expected<CommandLine> in_our_words(CLI::App& app, int argc, char** argv) {
  CommandLine line = {{argv, argv + argc}, {}};
  std::vector<std::string>& words = line.words;
  CLI::App* command = &app;
  std::string path;
  size_t named = 1;
  for (; named < words.size(); ++named) {
    const auto found = command->get_subcommands(
        [&](const CLI::App* one) { return one->get_name() == words[named]; });
    if (found.empty()) break;
    command = found.front();
    path += (path.empty() ? "" : " ") + words[named];
  }
  if (command == &app || command->get_prefix_command()) return line;
  const std::vector<std::string> rest(words.begin() + static_cast<ptrdiff_t>(named), words.end());
  AERIE_ASSIGN_OR_RETURN(OurCommand ours, to_our_command(*command, flags_for(path), rest));
  words.resize(named);
  words.insert(words.end(), ours.words.begin(), ours.words.end());
  line.notes = std::move(ours.notes);
  return line;
}

int run(int argc, char** argv) {
  CLI::App app("Aerie: language models with lossless speculative decoding", "aerie");
  app.require_subcommand(1);
  set_help(app);
  app.set_version_flag("--version", "aerie " AERIE_VERSION, "The version");
  std::vector<std::pair<CLI::App*, Run>> commands;
  const auto add = [&](const char* name, const char* what, const auto& add_flags) {
    CLI::App* command = app.add_subcommand(name, what);
    commands.emplace_back(command, add_flags(*command));
    if (!command->get_prefix_command()) add_hub_flags(*command);
  };
  add("run", "Generate text from a prompt, or chat", add_run);
  add("serve", "Serve a model over HTTP, with OpenAI's API", add_serve_flags);
  add("ctl", "Give orders to a server that runs: models, trials of speculation", add_ctl_flags);
  add("pull", "Fetch models from the Hugging Face hub",
      [](CLI::App& pull) { return without_exit_status(add_pull_flags(pull)); });
  add("list", "Models that were fetched",
      [](CLI::App& list) { return without_exit_status(add_list_flags(list)); });
  add("remove", "Remove models that were fetched",
      [](CLI::App& remove) { return without_exit_status(add_remove_flags(remove)); });
  add("inspect", "Print what the files of a model or draft head hold", add_inspect);
  add("tokenize", "Text to token ids and back", add_tokenize);
  add("convert", "Write a model as one GGUF file, or safetensors", add_convert);
  add("bench", "Measure: passes, kernels, decoding, speculation",
      [](CLI::App& bench) { return without_exit_status(add_bench_flags(bench)); });
  add("tune", "Find out what to speculate with, and write it as a profile",
      [](CLI::App& tune) { return without_exit_status(add_tune_flags(tune)); });
  add("audit", "Replay recorded requests and compare the tokens", add_audit_flags);
  add("doctor", "Whether and how fast a model can run here, and what stands in the way",
      add_doctor_flags);
  // Nothing can stand before a subcommand's name.
  add("train", "Train draft heads, and make the data for it (aerie-train)",
      [&](CLI::App& train) { return add_train(train, argv + 1); });
  add("speedup", "Train a draft head for a model, measure it and write a profile (aerie-train)",
      [&](CLI::App& speedup) { return add_train(speedup, argv); });
  add("completion", "Print a script that completes flags in bash, zsh or fish, or the manual page",
      [&](CLI::App& completion) { return add_completion(completion, app, AERIE_VERSION); });
  show_hub_messages();
  check_flag_values(app, {"--prompt", "--system", "TEXT"});
  auto line = in_our_words(app, argc, argv);
  if (!line.ok()) return exit_with(line.status());
  const auto words = static_cast<int>(line->words.size());
  if (const auto ended = parse_flags<CLI::ParseError>(app, words, line->argv().data())) {
    return *ended;
  }
  set_progress_style(progress_style(app));
  if (const Status delayed = set_progress_delay(std::getenv(kProgressDelay)); !delayed.ok()) {
    return exit_with(delayed.with_context(kProgressDelay));
  }
  for (const std::string& note : line->notes) print_message("{}\n", note);
  for (const auto& [command, run_command] : commands) {
    if (command->parsed()) return exit_with(run_command());
  }
  return exit_with(internal_error("no subcommand was given"));
}

}  // namespace
}  // namespace aerie

int main(int argc, char** argv) {
  return aerie::run_program([&] { return aerie::run(argc, argv); });
}

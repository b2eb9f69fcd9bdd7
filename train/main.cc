// The program `aerie-train`, which `aerie train` and `aerie speedup` run.

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/flag_values.h"
#include "base/program.h"
#include "base/progress.h"
#include "base/standard_streams.h"
#include "hub/hub_settings.h"
#include "report/command_words.h"
#include "train/command/data_command.h"
#include "train/command/speedup_command.h"
#include "train/command/train_command.h"
#include "train/run/shell_text.h"

namespace {

// For `aerie`, which completes and explains the flags of this program.
constexpr std::string_view kTellWords = "--command-words";
// When progress is shown first, in seconds.
constexpr const char* kProgressDelay = "AERIE_PROGRESS_AFTER";

std::string typed(const std::string& program, int argc, char** argv) {
  std::string command = program;
  for (int i = 1; i < argc; ++i) command += " " + aerie::train::shell_word(argv[i]);
  return command;
}

int run(int argc, char** argv) {
  // `aerie speedup` is not a part of `aerie train`, but of this program.
  const bool speeds_up = argc > 1 && std::string_view(argv[1]) == "speedup";
  const std::string program = speeds_up ? "aerie" : "aerie train";
  CLI::App app("Aerie: train draft heads", program);
  app.require_subcommand(1);
  // As `aerie` has both.
  app.set_help_flag("-h,--help,--help-all", "Print this help message and exit");
  CLI::App* data = app.add_subcommand("data", "Let a model answer prompts, to train on");
  const auto run_data = aerie::train::add_data_flags(*data);
  const auto run_speedup = aerie::train::add_speedup_command(app);
  const auto run_method = aerie::train::add_train_commands(app);
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    command->add_flag_callback("--offline", aerie::set_offline, "Take models from the cache alone");
  }
  aerie::set_hub_listener([](const std::string& line) { aerie::print_message("{}\n", line); });
  if (argc == 2 && std::string_view(argv[1]) == kTellWords) {
    aerie::print_output(aerie::command_words_json(aerie::command_words(app)) + "\n");
    return aerie::exit_with(0);
  }
  aerie::check_flag_values(app, {});
  if (const auto ended = aerie::parse_flags<CLI::ParseError>(app, argc, argv)) return *ended;
  const std::string command = typed(program, argc, argv);
  aerie::set_progress_style(aerie::fitting_progress_style());
  if (const aerie::Status delayed = aerie::set_progress_delay(std::getenv(kProgressDelay));
      !delayed.ok()) {
    return aerie::exit_with(delayed.with_context(kProgressDelay));
  }
  return aerie::exit_with(data->parsed() ? run_data()
                          : speeds_up    ? run_speedup(command)
                                         : run_method(command));
}

}  // namespace

int main(int argc, char** argv) {
  return aerie::run_program([&] { return run(argc, argv); });
}

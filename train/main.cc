// The program `aerie-train`, which `aerie train` runs.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <string_view>

#include "train/data_command.h"
#include "train/train_command.h"

namespace {

// As it can be pasted into a shell.
std::string typed(int argc, char** argv) {
  std::string command = "aerie train";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const bool plain = !argument.empty() &&
                       argument.find_first_of(" \t\n\\'\"`$&|;<>()[]{}*?!#~") == argument.npos;
    command += ' ';
    if (plain) {
      command += argument;
      continue;
    }
    command += '\'';
    for (const char c : argument) command += c == '\'' ? std::string("'\\''") : std::string(1, c);
    command += '\'';
  }
  return command;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Aerie: train draft heads", "aerie train");
  app.require_subcommand(1);
  CLI::App* data = app.add_subcommand("data", "Let a model answer prompts, to train on");
  const auto run_data = aerie::train::add_data_flags(*data);
  const auto run_method = aerie::train::add_train_commands(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto status = data->parsed() ? run_data() : run_method(typed(argc, argv));
  if (status.ok()) return *status;
  fmt::print(stderr, "error: {}\n", status.status().message());
  return status.status().code() == aerie::StatusCode::kInvalidArgument ? 2 : 1;
}

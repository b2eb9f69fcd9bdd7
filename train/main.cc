// The program `aerie-train`, which `aerie train` runs.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "train/data_command.h"

int main(int argc, char** argv) {
  CLI::App app("Aerie: train draft heads", "aerie train");
  app.require_subcommand(1);
  CLI::App* data = app.add_subcommand("data", "Let a model answer prompts, to train on");
  const auto run_data = aerie::train::add_data_flags(*data);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto status = run_data();
  if (status.ok()) return *status;
  fmt::print(stderr, "error: {}\n", status.status().message());
  return status.status().code() == aerie::StatusCode::kInvalidArgument ? 2 : 1;
}

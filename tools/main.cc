// The program `aerie`: the one place that reads flags.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>

#include "tools/files/convert.h"
#include "tools/files/inspect.h"
#include "tools/files/tokenize.h"
#include "tools/flags.h"
#include "tools/measure/audit_command.h"
#include "tools/measure/bench_command.h"
#include "tools/run/run.h"
#include "tools/serve/serve.h"
#include "tools/train.h"

namespace {

// 2 for what the caller can correct on the command line, 1 for everything else.
int fail(const aerie::Status& status) {
  fmt::print(stderr, "error: {}\n", status.message());
  return status.code() == aerie::StatusCode::kInvalidArgument ? 2 : 1;
}

int finish(const aerie::Status& status) {
  return status.ok() ? 0 : fail(status);
}

// Of commands that have an exit status of their own.
int finish(const aerie::Expected<int>& status) {
  return status.ok() ? *status : fail(status.status());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Aerie: language models with lossless speculative decoding", "aerie");
  app.require_subcommand(1);
  app.set_version_flag("--version", "aerie " AERIE_VERSION);

  CLI::App* run = app.add_subcommand("run", "Generate text from a prompt, or chat");
  const auto run_options = aerie::add_run_flags(*run);

  CLI::App* serve = app.add_subcommand("serve", "Serve a model over HTTP, with OpenAI's API");
  const auto run_serve = aerie::add_serve_flags(*serve);

  CLI::App* inspect =
      app.add_subcommand("inspect", "Print what the files of a model or draft head hold");
  std::string inspect_path;
  aerie::InspectOptions inspect_options;
  inspect
      ->add_option("MODEL", inspect_path,
                   "A GGUF file, a Hugging Face folder, or safetensors or PyTorch files")
      ->required();
  inspect->add_flag("--tensors", inspect_options.tensors, "List every tensor");
  inspect->add_flag("--json", inspect_options.json, "As JSON");
  aerie::ConvertOptions inspect_convert;
  inspect->add_option("--convert", inspect_convert.output,
                      "Write it here instead, as `aerie convert` does");

  CLI::App* tokenize = app.add_subcommand("tokenize", "Text to token ids and back");
  aerie::TokenizeCommand tokenize_options;
  tokenize->add_option("-m,--model", tokenize_options.model, aerie::kModelHelp)->required();
  CLI::Option* text =
      tokenize->add_option("TEXT", tokenize_options.text, "The text, or ids with --decode");
  tokenize
      ->add_option("--frequencies", tokenize_options.frequencies,
                   "Files of text: the ids in them, the most frequent first")
      ->excludes(text);
  tokenize->add_flag("--special", tokenize_options.special, "Names of control tokens become them");
  tokenize->add_flag("--add-special", tokenize_options.add_special,
                     "BOS and EOS as the model wants");
  tokenize->add_flag("--ids", tokenize_options.ids_only, "Only the ids");
  tokenize->add_flag("--json", tokenize_options.json, "As JSON");
  tokenize->add_flag("--decode", tokenize_options.decode, "The text is a list of ids");

  CLI::App* convert =
      app.add_subcommand("convert", "Write a model as one GGUF file, or safetensors");
  const auto convert_options = aerie::add_convert_flags(*convert);

  CLI::App* bench = app.add_subcommand("bench", "Measure: passes, kernels, decoding, speculation");
  const auto run_bench = aerie::add_bench_flags(*bench);

  CLI::App* tune =
      app.add_subcommand("tune", "Find out what to speculate with, and write it as a profile");
  const auto run_tune = aerie::add_tune_flags(*tune);

  CLI::App* audit = app.add_subcommand("audit", "Replay recorded requests and compare the tokens");
  const auto run_audit = aerie::add_audit_flags(*audit);

  CLI::App* train =
      app.add_subcommand("train", "Train draft heads, and make the data for it (aerie-train)");
  train->prefix_command();
  train->set_help_flag();

  CLI::App* speedup = app.add_subcommand(
      "speedup", "Train a draft head for a model, measure it and write a profile (aerie-train)");
  speedup->prefix_command();
  speedup->set_help_flag();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  // Nothing can stand before a subcommand's name.
  if (train->parsed()) return finish(aerie::run_train(argv + 1));
  if (speedup->parsed()) return finish(aerie::run_train(argv));
  if (inspect->parsed() && !inspect_convert.output.empty()) {
    inspect_convert.input = inspect_path;
    return finish(aerie::convert(inspect_convert, std::cerr));
  }
  if (inspect->parsed()) return finish(aerie::inspect(inspect_path, inspect_options, std::cout));
  if (tokenize->parsed()) {
    if (text->count() == 0 && tokenize_options.frequencies.empty()) {
      return fail({aerie::StatusCode::kInvalidArgument,
                   "there is nothing to tokenize: give TEXT or --frequencies FILE..."});
    }
    return finish(aerie::tokenize(tokenize_options, std::cout));
  }
  if (convert->parsed()) {
    const auto options = convert_options();
    return finish(options.ok() ? aerie::convert(*options, std::cerr) : options.status());
  }
  if (serve->parsed()) return finish(run_serve());
  if (bench->parsed()) return finish(run_bench());
  if (tune->parsed()) return finish(run_tune());
  if (audit->parsed()) return finish(run_audit());
  const auto options = run_options();
  if (!options.ok()) return fail(options.status());
  return finish(options->chat ? aerie::run_chat(*options) : aerie::run_prompt(*options));
}

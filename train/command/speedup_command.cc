#include "train/command/speedup_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "base/files.h"
#include "base/interrupt.h"
#include "base/standard_streams.h"
#include "train/command/train_flags.h"
#include "train/speedup/speedup.h"
#include "train/speedup/speedup_head.h"

namespace aerie::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAsTrained = "f32";

struct SpeedupFlags {
  SpeedupOptions options;
  std::string budget = "2h", method = "auto", device = "cpu", type = "q8_0";
};

// The project's own prompts, where the build puts them beside the program.
Status add_own_prompts(SpeedupOptions& options) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path folder = program.parent_path().parent_path() / "share" / "aerie" / "prompts";
  if (auto paths = paths_in(folder, "", ".jsonl"); paths.ok()) options.prompts = *std::move(paths);
  // Functions to complete, as its README says.
  for (const std::string& path : options.prompts) {
    if (path.ends_with("/code.jsonl")) options.plain.push_back(path);
  }
  if (!options.prompts.empty()) return {};
  return {StatusCode::kNotFound,
          fmt::format("there are no prompts in {}: build them (ninja aerie_prompts) or give "
                      "--prompts FILE...",
                      folder.string())};
}

// "models/Small.Q4_1.gguf" becomes "Small.Q4_1-speedup".
std::string default_folder(const std::string& model) {
  fs::path path = model;
  if (!path.has_filename()) path = path.parent_path();
  if (path.extension() == ".gguf") path.replace_extension();
  return path.filename().string() + "-speedup";
}

Expected<int> run(SpeedupFlags& flags, const std::string& command) {
  SpeedupOptions& o = flags.options;
  AERIE_ASSIGN_OR_RETURN(o.budget, parse_duration("--budget", flags.budget));
  AERIE_ASSIGN_OR_RETURN(o.method, parse_speedup_method(flags.method));
  AERIE_ASSIGN_OR_RETURN(o.device, parse_device(flags.device));
  o.type = flags.type == kAsTrained ? std::nullopt : dtype_from_name(flags.type);
  if (o.prompts.empty()) AERIE_RETURN_IF_ERROR(add_own_prompts(o));
  if (o.out.empty()) o.out = default_folder(o.model);
  o.command = command;
  o.say = [](const std::string& line) { print_message("{}\n", line); };
  o.cancel = &interrupted;
  catch_interrupts();
  AERIE_ASSIGN_OR_RETURN(const SpeedupEnd end, speedup(o));
  return end == SpeedupEnd::kInterrupted ? 130 : 0;
}

}  // namespace

std::function<Expected<int>(const std::string& command)> add_speedup_command(CLI::App& app) {
  CLI::App* own = app.add_subcommand(
      "speedup", "Train a draft head for a model, measure it and write a profile, in a given time");
  auto flags = std::make_shared<SpeedupFlags>();
  SpeedupOptions& o = flags->options;
  own->add_option("-m,--model", o.model, "A GGUF file or a Hugging Face folder")->required();
  own->add_option("--out", o.out,
                  "The folder for everything; the same command goes on with what is there "
                  "(default: the model's name and -speedup)");
  own->add_option("--budget", flags->budget, "Time for all of it: 30m, 2h, 1.5h")
      ->capture_default_str();
  own->add_option(
      "--prompts", o.prompts,
      "Files of prompts, as `aerie train data` reads them (default: the project's own)");
  own->add_option("--method", flags->method, speedup_methods("or"))->capture_default_str();
  own->add_option("--threads", o.threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  own->add_option("--device", flags->device, "That trains: cpu, cuda or cuda:N")
      ->capture_default_str();
  own->add_option("--draft-vocab", o.draft_vocab,
                  "Draft only the so many most frequent tokens of the data; 0: all (default: a "
                  "quarter of a large vocabulary, at most 16384)")
      ->check(CLI::Range(0, 1 << 30));
  own->add_option("--intermediate", o.intermediate,
                  "Width of the head's feed-forward (default: the model's)")
      ->check(CLI::Range(1, 1 << 20));
  own->add_option("--type", flags->type,
                  "How the head is stored: q8_0, q4_0, or f32 as it was trained")
      ->capture_default_str()
      ->check(CLI::IsMember({"q8_0", "q4_0", kAsTrained}));
  return [flags, own](const std::string& command) -> Expected<int> {
    return own->parsed() ? run(*flags, command) : Expected<int>(-1);
  };
}

}  // namespace aerie::train

// The flags of the larger subcommands.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/model_source.h"
#include "tools/device_flags.h"
#include "tools/run/run_options.h"

namespace CLI {
class App;
}

namespace aerie {

inline constexpr const char* kModelHelp =
    "A GGUF file (any part of a split one), a Hugging Face folder, or ORG/REPO[@REVISION][:QUANT]";

// "auto, none, ngram, ... [:KEY=VALUE,...]"
std::string method_choices();

// "auto" is the best that the processor has; the choices are those of this build.
std::string isa_choices();  // "auto, ..., reference"
Expected<kernels::Isa> parse_isa(const std::string& name);

inline constexpr const char* kStrictSchemasHelp =
    "Refuse keywords and formats of JSON schemas that are not known: they may be misspelt";

inline constexpr const char* kCacheTypeHelp =
    "What keys and values are rounded to: f16, or q8 for half the memory";
Expected<kernels::KvType> parse_cache_type(const std::string& name);

// How a model is opened, where it is parsed as text first.
struct EngineFlags {
  std::string speculate;
  std::string speculative_config;
  std::string verify = "exact";
  std::string isa = "auto";
  std::string cache_type = "f16";
  std::string type;
  std::string draft_type;
  DeviceFlags device;
};

// --generation-config: "auto", or nothing of the model's own.
void add_generation_config(CLI::App& app, std::string& choice);

// Methods that need nothing but the model, for who may pick another than the one at the start.
std::vector<std::string> offered_methods();
std::vector<SpeculativeConfig> offered_speculations(const SpeculativeConfig& chosen);

// Of `aerie run` and `aerie serve`. Both must outlive `app`.
void add_engine_flags(CLI::App& app, EngineFlags& flags, EngineOptions& options,
                      const char* context_flag = "--ctx");
void add_speculation_flags(CLI::App& app, EngineFlags& flags, EngineOptions& options);
// Of these, what drafts: --speculate, --speculative-config and --draft-type.
void add_drafter_flags(CLI::App& app, EngineFlags& flags);
// What was given, or `unsaid`.
Expected<SpeculativeConfig> read_drafter_flags(const CLI::App& app, const EngineFlags& flags,
                                               SpeculativeConfig unsaid);
// After parsing: what was given as text goes into `out`.
Status read_engine_flags(const CLI::App& app, const EngineFlags& flags, EngineOptions& out);

// Adds the flags to `app`; the returned function turns what was parsed into options and says what
// contradicts itself. It must not outlive `app`.
std::function<Expected<RunOptions>()> add_run_flags(CLI::App& app);
std::function<Expected<ConvertOptions>()> add_convert_flags(CLI::App& app);

}  // namespace aerie

#include "tools/measure/bench_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "base/errors.h"
#include "base/interrupt.h"
#include "base/standard_streams.h"
#include "engine/rank_setup.h"
#include "hub/hub_settings.h"
#include "hub/locate.h"
#include "measure/models/make_head.h"
#include "measure/models/make_model.h"
#include "measure/models/shapes.h"
#include "measure/models/upcycle.h"
#include "measure/passes/decode_bench.h"
#include "measure/passes/head_bench.h"
#include "measure/passes/kernel_bench.h"
#include "measure/passes/rank_bench.h"
#include "measure/passes/verify_bench.h"
#include "measure/spec/spec_bench.h"
#include "measure/spec/spec_report.h"
#include "measure/spec/spec_simulation.h"
#include "measure/spec/sweep_bench.h"
#include "measure/tune/tune.h"
#include "measure/worker.h"
#include "model/import/hugging_face_file.h"
#include "tools/device_flags.h"
#include "tools/flags.h"
#include "tools/measure/bench_serve.h"
#include "tools/options.h"
#include "tools/report_file.h"

namespace aerie {
namespace {

constexpr const char* kJsonHelp = "Write the figures to this file; -: standard output";
constexpr const char* kMemoryHelp =
    "MiB to measure the bandwidth with (default: several times the last cache)";

using Run = std::function<Status()>;

Expected<DType> parse_type(const std::string& name) {
  if (const auto type = dtype_from_name(name)) return *type;
  std::string known;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (i > 0) known += ", ";
    known += dtype_info(static_cast<DType>(i)).name;
  }
  return invalid_argument("there is no type '{}': give one of {}", name, known);
}

// The table to standard output, the figures to --json.
template <typename Report>
Status show(const Report& report, ReportFile& json) {
  json.print_beside(to_text(report));
  return json.write(to_json(report));
}

// A model that is made as it is loaded, in the place of --model.
struct MadeModelFlags {
  measure::MakeModelOptions options;
  std::string type = "q4_0";
};

void add_model(CLI::App& app, EngineOptions& engine) {
  app.add_option("-m,--model", engine.model, kModelHelp)->required();
}

// --model, or --shape.
void add_model(CLI::App& app, EngineOptions& engine, MadeModelFlags& made) {
  CLI::Option* model = app.add_option("-m,--model", engine.model, kModelHelp);
  CLI::Option* shape =
      app.add_option("--shape", made.options.shape,
                     "Instead: a published shape with random weights, made in memory: " +
                         measure::shape_names())
          ->excludes(model);
  app.add_option("--type", made.type,
                 "With --shape: type of the matrices: q4_0, q4_k, bf16, ... (default: q4_0)")
      ->needs(shape);
  app.add_option("--layers", made.options.layers, "With --shape: the first N layers alone")
      ->needs(shape)
      ->check(CLI::PositiveNumber);
}

Status use_made_model(const MadeModelFlags& flags, EngineOptions& engine) {
  measure::MakeModelOptions options = flags.options;
  if (options.shape.empty() && engine.model.empty()) {
    return invalid_argument("give --model, or --shape: {}", measure::shape_names());
  }
  if (options.shape.empty()) return {};
  AERIE_RETURN_IF_ERROR(measure::find_shape(options.shape).status());
  AERIE_ASSIGN_OR_RETURN(options.type, parse_type(flags.type));
  engine.model = fmt::format("{}-{}", options.shape, dtype_info(options.type).name);
  engine.make_file = [options](ThreadPool& pool) { return random_model(options, pool); };
  return {};
}

Status run_upcycle(const std::string& from, const measure::MakeModelOptions& shared,
                   measure::UpcycleOptions options) {
  AERIE_ASSIGN_OR_RETURN(const std::string path, locate_model(from));
  AERIE_ASSIGN_OR_RETURN(const auto file, open_model_file(path));
  options.output = shared.output;
  options.seed = shared.seed;
  AERIE_ASSIGN_OR_RETURN(const int64_t bytes, measure::upcycle(*file, options));
  print_message("wrote {}: {:.1f} MiB\n", options.output, static_cast<double>(bytes) / (1 << 20));
  return {};
}

Run add_make_model(CLI::App& app) {
  struct Flags {
    measure::MakeModelOptions options;
    measure::UpcycleOptions experts;
    std::string type = "q4_0", from;
  };
  auto flags = std::make_shared<Flags>();
  app.add_option("OUT", flags->options.output, "The GGUF file to write")->required();
  CLI::Option* shape = app.add_option("--shape", flags->options.shape, measure::shape_names());
  CLI::Option* from =
      app.add_option(
             "--from", flags->from,
             "Instead: a mixture of experts made of this dense Llama, with its feed-forward "
             "as every expert")
          ->excludes(shape);
  app.add_option("--experts", flags->experts.experts, "With --from: how many")->needs(from);
  app.add_option("--used", flags->experts.used, "With --from: how many of them a token uses")
      ->needs(from);
  app.add_option(
         "--spread", flags->experts.spread,
         "With --from: how far experts are apart, as a part of each weight (they become Q8_0)")
      ->needs(from);
  add_shown(app, "--type", flags->type, "Type of the matrices: q4_0, q4_k, bf16, ...");
  app.add_option("--layers", flags->options.layers, "The first N layers alone")
      ->check(CLI::PositiveNumber);
  add_shown(app, "--seed", flags->options.seed, "Another model for each");
  add_threads(app, flags->options.threads);
  return [flags]() -> Status {
    measure::MakeModelOptions& options = flags->options;
    if (!flags->from.empty()) return run_upcycle(flags->from, options, flags->experts);
    if (options.shape.empty()) {
      return invalid_argument("give --shape, or --from and a model: {}", measure::shape_names());
    }
    AERIE_ASSIGN_OR_RETURN(options.type, parse_type(flags->type));
    AERIE_ASSIGN_OR_RETURN(const measure::MakeModelReport report, measure::make_model(options));
    for (const std::string& note : report.notes) print_message("note: {}\n", note);
    print_message("wrote {}: {:.1f} MiB\n", options.output,
                  static_cast<double>(report.bytes) / (1 << 20));
    return {};
  };
}

// The model's, or one of a shape.
Expected<std::unique_ptr<ModelFile>> file_or_shape(const std::string& model,
                                                   const std::string& shape, ThreadPool& pool) {
  if (model.empty() && shape.empty()) {
    return invalid_argument("give --model, or --shape: {}", measure::shape_names());
  }
  if (!shape.empty()) {
    measure::MakeModelOptions made;
    made.shape = shape;
    return measure::random_model(made, pool);
  }
  AERIE_ASSIGN_OR_RETURN(const std::string path, locate_model(model));
  return open_model_file(path);
}

Run add_make_head(CLI::App& app) {
  struct Flags {
    measure::MakeHeadOptions options;
    std::string model, shape;
  };
  auto flags = std::make_shared<Flags>();
  measure::MakeHeadOptions& o = flags->options;
  app.add_option("OUT", o.output, "The folder to write")->required();
  CLI::Option* model = app.add_option("-m,--model", flags->model, kModelHelp);
  app.add_option(
         "--shape", flags->shape,
         "Instead: for a model of a published shape, as of " + std::string("bench make-model"))
      ->excludes(model);
  app.add_option("--kind", o.kind, fmt::format("{}", fmt::join(measure::head_kinds(), ", ")))
      ->required();
  app.add_option("--draft-vocab", o.draft_vocab, "Tokens that EAGLE-3 can draft; 0: all")
      ->check(CLI::NonNegativeNumber);
  add_shown(app, "--depth", o.depth, "Heads of Medusa, Hydra and an MLP speculator")
      ->check(CLI::Range(1, 64));
  add_shown(app, "--seed", o.seed, "Another head for each");
  return [flags]() -> Status {
    ThreadPool pool(1);  // of a file that is made
    AERIE_ASSIGN_OR_RETURN(const auto file, file_or_shape(flags->model, flags->shape, pool));
    AERIE_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(*file));
    AERIE_ASSIGN_OR_RETURN(const int64_t bytes, measure::make_head(flags->options, config));
    print_message("wrote {}: {:.1f} MiB\n", flags->options.output,
                  static_cast<double>(bytes) / (1 << 20));
    return {};
  };
}

Run add_heads(CLI::App& app) {
  struct Flags {
    measure::HeadBenchOptions options;
    std::string isa = "auto", json;
  };
  auto flags = std::make_shared<Flags>();
  measure::HeadBenchOptions& o = flags->options;
  app.add_option("-m,--model", o.model, kModelHelp)->required();
  app.add_option("--kinds", o.kinds,
                 fmt::format("Heads (default: all): {}", fmt::join(measure::head_kinds(), ", ")))
      ->delimiter(',');
  app.add_option("--type", o.type, "Type of their matrices: q8_0, q4_0, ... (default: bf16)");
  add_shown(app, "--draft-vocab", o.draft_vocab, "Tokens that EAGLE-3 can draft; 0: all");
  add_shown(app, "--depth", o.depth, "Tokens of a chain")->check(CLI::Range(2, 64));
  add_shown(app, "--context", o.context, "Positions that are cached")
      ->check(CLI::Range(1, 1 << 20));
  add_threads(app, o.threads);
  add_shown(app, "--repeat", o.repeats, "Repetitions of everything")->check(CLI::Range(1, 100000));
  app.add_option("--memory", o.memory_mib, kMemoryHelp);
  add_shown(app, "--isa", flags->isa, isa_choices());
  app.add_option("--json", flags->json, kJsonHelp);
  return [flags]() -> Status {
    AERIE_ASSIGN_OR_RETURN(flags->options.isa, parse_isa(flags->isa));
    if (const std::string& type = flags->options.type; !type.empty()) {
      AERIE_RETURN_IF_ERROR(parse_type(type).status());
    }
    AERIE_ASSIGN_OR_RETURN(ReportFile json, ReportFile::open(flags->json));
    AERIE_ASSIGN_OR_RETURN(const auto report, measure::bench_heads(flags->options));
    return show(report, json);
  };
}

Run add_verify(CLI::App& app) {
  struct Flags {
    measure::VerifyOptions options;
    MadeModelFlags made;
    DeviceFlags device;
    int tensor_parallel = 1;
    std::string isa = "auto", cache_type = "f16", json;
  };
  auto flags = std::make_shared<Flags>();
  measure::VerifyOptions& o = flags->options;
  o.prompts = {512};
  add_model(app, o.engine, flags->made);
  add_list(app, "--rows", o.rows, "Rows of a pass: root and nodes");
  add_list(app, "--context", o.contexts, "Positions that are cached");
  add_list(app, "--prompt", o.prompts, "Tokens of prompts that are read besides");
  add_threads(app, o.engine.threads);
  add_device_flags(app, flags->device);
  add_tensor_parallel(app, flags->tensor_parallel);
  add_shown(app, "--repeat", o.repeats, "Repetitions of everything");
  app.add_option("--memory", o.memory_mib, kMemoryHelp);
  add_shown(app, "--cache-type", flags->cache_type, kCacheTypeHelp);
  add_shown(app, "--isa", flags->isa, isa_choices());
  app.add_option("--json", flags->json, kJsonHelp);
  return [flags]() -> Status {
    EngineOptions& engine = flags->options.engine;
    AERIE_ASSIGN_OR_RETURN(engine.isa, parse_isa(flags->isa));
    AERIE_ASSIGN_OR_RETURN(engine.cache_type, parse_cache_type(flags->cache_type));
    AERIE_RETURN_IF_ERROR(read_device_flags(flags->device, engine));
    AERIE_RETURN_IF_ERROR(use_made_model(flags->made, engine));
    AERIE_ASSIGN_OR_RETURN(const bool followed,
                           join_ranks(flags->tensor_parallel, engine.model, engine.group));
    if (followed) return {};
    AERIE_ASSIGN_OR_RETURN(ReportFile json, ReportFile::open(flags->json));
    AERIE_ASSIGN_OR_RETURN(const auto report, measure::bench_verify(flags->options));
    return show(report, json);
  };
}

Run add_ranks(CLI::App& app) {
  struct Flags {
    measure::RankOptions options;
    int tensor_parallel = 1;
    std::string isa = "auto", json;
  };
  auto flags = std::make_shared<Flags>();
  measure::RankOptions& o = flags->options;
  app.add_option("-m,--model", o.model, kModelHelp)->required();
  add_tensor_parallel(app, flags->tensor_parallel);
  add_list(app, "--rows", o.rows, "Rows of a pass");
  add_list(app, "--ranks", o.ranks, "Numbers of processes to predict for");
  add_shown(app, "--context", o.context, "Positions that are cached");
  add_shown(app, "--acceptance", o.acceptance,
            "That a drafted token stands where the one before it does");
  app.add_option("--latency-us", o.latency_us, "Of another link than the one that is there");
  app.add_option("--gbits", o.gbits, "The same: gigabits a second");
  add_threads(app, o.threads);
  add_shown(app, "--repeat", o.repeats, "Repetitions of everything");
  add_shown(app, "--isa", flags->isa, isa_choices());
  app.add_option("--json", flags->json, kJsonHelp);
  return [flags]() -> Status {
    AERIE_ASSIGN_OR_RETURN(flags->options.isa, parse_isa(flags->isa));
    AERIE_ASSIGN_OR_RETURN(
        const bool followed,
        join_ranks(flags->tensor_parallel, flags->options.model, flags->options.group));
    if (followed) return {};
    AERIE_ASSIGN_OR_RETURN(ReportFile json, ReportFile::open(flags->json));
    AERIE_ASSIGN_OR_RETURN(const auto report, measure::bench_ranks(flags->options));
    return show(report, json);
  };
}

Run add_kernels(CLI::App& app) {
  struct Flags {
    measure::KernelOptions options;
    std::vector<std::string> types;
    std::string isa = "auto", json;
  };
  auto flags = std::make_shared<Flags>();
  measure::KernelOptions& o = flags->options;
  app.add_option("--types", flags->types, "Types of the weights, such as q4_0,q8_0 (default: all)")
      ->delimiter(',');
  add_list(app, "--rows", o.rows, "Rows of activations");
  add_threads(app, o.threads);
  add_shown(app, "--repeat", o.repeats, "Repetitions of everything");
  app.add_option("--memory", o.memory_mib,
                 "MiB of weights to read from memory, and to measure its bandwidth with (default: "
                 "several times the last cache)");
  add_shown(app, "--isa", flags->isa, isa_choices());
  app.add_option("--json", flags->json, kJsonHelp);
  return [flags]() -> Status {
    AERIE_ASSIGN_OR_RETURN(flags->options.isa, parse_isa(flags->isa));
    for (const std::string& name : flags->types) {
      AERIE_ASSIGN_OR_RETURN(const DType type, parse_type(name));
      flags->options.types.push_back(type);
    }
    AERIE_ASSIGN_OR_RETURN(ReportFile json, ReportFile::open(flags->json));
    AERIE_ASSIGN_OR_RETURN(const auto report, measure::bench_kernels(flags->options));
    return show(report, json);
  };
}

Run add_decode(CLI::App& app) {
  struct Flags {
    measure::DecodeOptions options;
    MadeModelFlags made;
    DeviceFlags device;
    std::string speculate = "none", isa = "auto", cache_type = "f16", json;
  };
  auto flags = std::make_shared<Flags>();
  measure::DecodeOptions& o = flags->options;
  add_model(app, o.engine, flags->made);
  add_list(app, "--context", o.contexts, "Tokens of the prompt that decoding follows");
  add_shown(app, "--tokens", o.tokens, "Tokens to decode");
  app.add_option("--text", o.text_file,
                 "A file whose text the prompts begin with (default: random tokens)");
  app.add_option("--speculate", flags->speculate, "Also with a drafter, as `aerie run` has it");
  add_threads(app, o.engine.threads);
  add_device_flags(app, flags->device);
  add_shown(app, "--repeat", o.repeats, "Repetitions of everything");
  app.add_option("--memory", o.memory_mib, kMemoryHelp);
  add_shown(app, "--cache-type", flags->cache_type, kCacheTypeHelp);
  add_shown(app, "--isa", flags->isa, isa_choices());
  app.add_option("--json", flags->json, kJsonHelp);
  return [flags]() -> Status {
    AERIE_ASSIGN_OR_RETURN(flags->options.engine.isa, parse_isa(flags->isa));
    AERIE_ASSIGN_OR_RETURN(flags->options.engine.cache_type, parse_cache_type(flags->cache_type));
    AERIE_ASSIGN_OR_RETURN(flags->options.engine.speculation,
                           in_context(parse_speculative_spec(flags->speculate), "--speculate"));
    AERIE_RETURN_IF_ERROR(read_device_flags(flags->device, flags->options.engine));
    AERIE_RETURN_IF_ERROR(use_made_model(flags->made, flags->options.engine));
    AERIE_ASSIGN_OR_RETURN(ReportFile json, ReportFile::open(flags->json));
    AERIE_ASSIGN_OR_RETURN(const auto report, measure::bench_decode(flags->options));
    return show(report, json);
  };
}

struct SpecFlags {
  measure::SpecOptions options;
  MadeModelFlags made;  // of `bench spec`
  DeviceFlags device;
  std::vector<std::string> methods;
  std::vector<double> acceptance;
  double draft_cost = 0.0;
  int replay = 0;
  std::string verify = "exact", isa = "auto", cache_type = "f16", json, html;
};

struct SpecFiles {
  ReportFile json, html;

  static Expected<SpecFiles> open(const SpecFlags& flags) {
    AERIE_ASSIGN_OR_RETURN(ReportFile json, ReportFile::open(flags.json));
    AERIE_ASSIGN_OR_RETURN(ReportFile html, ReportFile::open(flags.html, "--html"));
    return SpecFiles{std::move(json), std::move(html)};
  }

  template <typename Report>
  Status write(const Report& report) {
    AERIE_RETURN_IF_ERROR(json.write(to_json(report)));
    return html.write(to_html(report));
  }
};

template <typename Report>
Status show_with_page(const Report& report, SpecFiles& files) {
  files.json.print_beside(to_text(report));
  return files.write(report);
}

Status run_simulation(const SpecFlags& flags, SpecFiles& files) {
  const measure::SpecOptions& o = flags.options;
  if (!o.datasets.empty() || !flags.methods.empty()) {
    return invalid_argument(
        "--simulate-acceptance writes to no prompts: leave out --dataset and --method");
  }
  measure::SimulationOptions options;
  options.engine = o.engine;
  options.acceptance = flags.acceptance;
  options.draft_cost = flags.draft_cost;
  options.context = o.pass_context;
  options.repeats = std::max(o.repeats, o.pass_repeats);
  options.memory_mib = o.memory_mib;
  options.replay_tokens = flags.replay;
  options.replay_repeats = o.repeats;
  AERIE_ASSIGN_OR_RETURN(const auto report, measure::simulate_acceptance(options));
  return show_with_page(report, files);
}

// What `spec` and `sweep` make of their flags alike; `o.methods` as --method has them.
Status finish_spec(SpecFlags& flags) {
  measure::SpecOptions& o = flags.options;
  AERIE_ASSIGN_OR_RETURN(o.engine.isa, parse_isa(flags.isa));
  AERIE_ASSIGN_OR_RETURN(o.engine.cache_type, parse_cache_type(flags.cache_type));
  AERIE_RETURN_IF_ERROR(read_device_flags(flags.device, o.engine));
  AERIE_ASSIGN_OR_RETURN(o.engine.rule,
                         in_context(verify_rule_from_name(flags.verify), "--verify"));
  for (const std::string& method : flags.methods) {
    auto config = parse_speculative_spec(method);
    if (!config.ok()) return config.status().with_context("--method");
    o.methods.push_back(*config);
  }
  o.cancel = &interrupted;
  return {};
}

Status said(bool was_interrupted) {
  if (!was_interrupted) return {};
  return {StatusCode::kCancelled, "interrupted; the figures are those of the prompts until then"};
}

Status run_spec(SpecFlags& flags) {
  AERIE_RETURN_IF_ERROR(finish_spec(flags));
  AERIE_RETURN_IF_ERROR(use_made_model(flags.made, flags.options.engine));
  AERIE_ASSIGN_OR_RETURN(SpecFiles files, SpecFiles::open(flags));
  if (!flags.acceptance.empty()) return run_simulation(flags, files);
  if (flags.replay > 0) return invalid_argument("--replay: give --simulate-acceptance with it");
  catch_interrupts();
  AERIE_ASSIGN_OR_RETURN(const auto report, measure::bench_spec(flags.options));
  AERIE_RETURN_IF_ERROR(show_with_page(report, files));
  return said(report.interrupted);
}

// All but the model.
void add_spec_flags(CLI::App& app, SpecFlags& flags) {
  measure::SpecOptions& o = flags.options;
  app.add_option(
      "--dataset", o.datasets,
      "Files of prompts, JSON lines with 'turns', 'prompt', 'question', 'text' or 'messages'");
  app.add_option("--method", flags.methods,
                 fmt::format("What drafts: {}; may be repeated", method_choices()))
      ->allow_extra_args(false);
  add_list(app, "--temperature", o.temperatures);
  add_shown(app, "--limit", o.selection.limit, "Only the first so many prompts of a file; 0: all");
  add_shown(app, "--sample", o.selection.sample, "Of those so many of each task, evenly spread");
  add_shown(app, "--max-tokens", o.max_tokens, "Tokens of a reply at most");
  add_shown(app, "--repeat", o.repeats, "Repetitions of every reply; the median counts");
  add_shown(app, "--seed", o.seed, "Of random choices; prompts add their number");
  add_shown(app, "--verify", flags.verify, verify_rule_choices());
  app.add_option("--ctx", o.engine.context,
                 "Tokens of context (default: the model's, at most 4096)")
      ->check(CLI::Range(2, 1 << 26));
  add_threads(app, o.engine.threads);
  add_device_flags(app, flags.device);
  app.add_option("--memory", o.memory_mib, kMemoryHelp);
  add_shown(app, "--cache-type", flags.cache_type, kCacheTypeHelp);
  add_shown(app, "--isa", flags.isa, isa_choices());
  app.add_option("--json", flags.json, kJsonHelp);
  app.add_option("--html", flags.html, "Write a page with plots to this file");
}

Run add_spec(CLI::App& app) {
  auto flags = std::make_shared<SpecFlags>();
  add_model(app, flags->options.engine, flags->made);
  add_spec_flags(app, *flags);
  app.add_option("--simulate-acceptance", flags->acceptance,
                 "Instead: what passes as measured and these acceptance rates, one for each depth, "
                 "would give; synthetic")
      ->delimiter(',');
  add_shown(app, "--draft-cost", flags->draft_cost,
            "With it: the time of a drafted token by that of a pass");
  app.add_option(
         "--replay", flags->replay,
         "With it: also write a reply of so many tokens with drafts that are right so often, "
         "of each depth and as 'auto' decides")
      ->check(CLI::Range(2, 1 << 20));
  return [flags] { return run_spec(*flags); };
}

Run add_sweep(CLI::App& app) {
  auto flags = std::make_shared<SpecFlags>();
  auto depths = std::make_shared<std::vector<int>>(measure::SweepOptions().depths);
  flags->options.temperatures = {0.0, 0.7, 1.0, 1.5};
  add_model(app, flags->options.engine);
  add_spec_flags(app, *flags);
  add_list(app, "--depths", *depths, "num_speculative_tokens of every method");
  return [flags, depths]() -> Status {
    AERIE_RETURN_IF_ERROR(finish_spec(*flags));
    AERIE_ASSIGN_OR_RETURN(SpecFiles files, SpecFiles::open(*flags));
    catch_interrupts();
    AERIE_ASSIGN_OR_RETURN(const auto report, measure::bench_sweep({flags->options, *depths}));
    AERIE_RETURN_IF_ERROR(show_with_page(report, files));
    return said(report.spec.interrupted);
  };
}

Run add_tune(CLI::App& app) {
  struct Flags : SpecFlags {
    measure::TuneOptions tune;
    std::string out = "profile.json";
  };
  auto flags = std::make_shared<Flags>();
  flags->options.temperatures = {0.0, 1.0};
  flags->options.repeats = 1;
  add_model(app, flags->options.engine);
  add_spec_flags(app, *flags);
  add_list(app, "--depths", flags->tune.depths,
           "num_speculative_tokens of the methods that leave it open");
  add_list(app, "--batches", flags->tune.batches, "Sequences at a time");
  add_shown(app, "--minutes", flags->tune.minutes,
            "About how long to search; with less fewer prompts and candidates are tried")
      ->check(CLI::PositiveNumber);
  add_shown(app, "--out", flags->out, "The profile to write, for --profile of `aerie run`");
  add_quiet(app);
  const CLI::Option* verify = app.get_option("--verify");
  return [flags, verify]() -> Status {
    AERIE_RETURN_IF_ERROR(finish_spec(*flags));
    AERIE_ASSIGN_OR_RETURN(SpecFiles files, SpecFiles::open(*flags));
    AERIE_ASSIGN_OR_RETURN(ReportFile profile, ReportFile::open(flags->out, "--out"));
    catch_interrupts();
    flags->tune.spec = flags->options;
    flags->tune.hub_cache = hub_settings().cache;
    if (verify->count() == 0) flags->tune.rules = {VerifyRule::kRejection, VerifyRule::kBlock};
    AERIE_ASSIGN_OR_RETURN(const auto report, measure::tune(flags->tune));
    files.json.print_beside(to_text(report));
    AERIE_RETURN_IF_ERROR(files.write(report.spec));
    if (!report.profile.choices.empty()) {
      AERIE_RETURN_IF_ERROR(profile.write(to_json(report.profile)));
      print_message("wrote {}\n", flags->out);
    }
    if (!report.spec.interrupted) return {};
    return {StatusCode::kCancelled, "interrupted; the profile has the temperatures until then"};
  };
}

Run add_worker(CLI::App& app) {
  struct Flags {
    measure::WorkerOptions options;
    std::string isa = "auto";
  };
  auto flags = std::make_shared<Flags>();
  measure::WorkerOptions& o = flags->options;
  app.add_option("-m,--model", o.model, kModelHelp)->required();
  add_shown(app, "--rows", o.rows, "The most rows of a pass");
  add_shown(app, "--positions", o.positions, "The most positions of a request");
  add_threads(app, o.threads);
  add_shown(app, "--isa", flags->isa, isa_choices());
  return [flags]() -> Status {
    AERIE_ASSIGN_OR_RETURN(flags->options.isa, parse_isa(flags->isa));
    return measure::run_worker(flags->options, std::cin, std::cout);
  };
}

}  // namespace

std::function<Status()> add_tune_flags(CLI::App& app) {
  return add_tune(app);
}

std::function<Status()> add_bench_flags(CLI::App& app) {
  app.require_subcommand(1);
  struct Command {
    CLI::App* app;
    Run run;
  };
  std::vector<Command> commands;
  const auto add = [&](const char* name, const char* help, Run (*flags)(CLI::App&)) {
    CLI::App* command = app.add_subcommand(name, help);
    commands.push_back({command, flags(*command)});
    add_quiet(*command);
  };
  add("verify", "Passes of several rows, against one row and the machine's limits", add_verify);
  add("ranks", "Passes that several processes share, and what other links and numbers would give",
      add_ranks);
  add("kernels", "Matrix products of every type, against the machine's limits", add_kernels);
  add("decode", "Prompts and decoding, plainly and with a drafter", add_decode);
  add("spec", "Speculation against plain decoding on sets of prompts", add_spec);
  add("sweep", "The same for several depths of drafts", add_sweep);
  add("serve", "A server under load, with several speculation settings",
      [](CLI::App& a) -> Run { return add_bench_serve(a); });
  add("worker", "Answer requests over a pipe, for bench/peers/compare.py", add_worker);
  add("heads", "Passes of trained heads, of random weights, against the machine's limits",
      add_heads);
  add("make-head", "Write a draft head with random weights for a model", add_make_head);
  add("make-model", "Write a model of a published shape with random weights", add_make_model);
  return [commands]() -> Status {
    for (const Command& command : commands) {
      if (command.app->parsed()) return command.run();
    }
    return internal_error("no subcommand was given");
  };
}

}  // namespace aerie

#include "tools/flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>

#include "base/errors.h"
#include "format/text.h"
#include "tensor/quantize.h"
#include "tools/options.h"

namespace aerie {
namespace {

// What is parsed as text first, or stands beside the options.
struct RunFlags {
  RunOptions options;
  EngineFlags engine;
  std::vector<std::string> logit_bias;
  std::string json_schema;
  std::string grammar;
  std::string regex;
  std::vector<std::string> words;  // the model if -m is left out, the prompt
  std::string generation_config = "auto";
  std::string color;
  bool strict_schemas = false;
  bool raw = false;
  bool use_template = false;
  CLI::App* app = nullptr;
};

bool given(const CLI::App& app, const char* flag) {
  return app.get_option(flag)->count() > 0;
}

Expected<std::pair<int32_t, float>> parse_bias(const std::string& text) {
  const Status wrong(StatusCode::kInvalidArgument,
                     fmt::format("--logit-bias {}: give ID=BIAS, such as 42=-5 or 42=-inf", text));
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return wrong;
  int32_t id = 0;
  const char* id_end = text.data() + equals;
  if (const auto r = std::from_chars(text.data(), id_end, id);
      r.ec != std::errc() || r.ptr != id_end) {
    return wrong;
  }
  float bias = 0;
  const char* end = text.data() + text.size();
  const char* from = id_end + 1 + (id_end + 1 < end && id_end[1] == '+' ? 1 : 0);
  if (const auto r = std::from_chars(from, end, bias); r.ec != std::errc() || r.ptr != end)
    return wrong;
  return std::pair(id, bias);
}

// With commas between them.
template <typename Value, size_t kCount, typename Name>
std::string names_of(const Value (&values)[kCount], const Name& name) {
  std::string names;
  for (const Value& value : values) {
    if (!names.empty()) names += ',';
    names += name(value);
  }
  return names;
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

// Empty: none.
Expected<std::optional<DType>> parse_type(const char* flag, const std::string& name) {
  if (name.empty()) return std::optional<DType>();
  const std::optional<DType> type = dtype_from_name(name);
  if (type && can_quantize(*type)) return type;
  return invalid_argument("{} {}: give one of {}", flag, name, quantizable_types());
}

Expected<std::optional<GrammarSpec>> read_grammar(const RunFlags& flags) {
  std::optional<GrammarSpec> out;
  const auto take = [&](const char* flag, GrammarKind kind, const std::string& text) {
    if (!given(*flags.app, flag)) return true;
    if (out) return false;
    out = GrammarSpec{kind, text, {}};
    return true;
  };
  if (take("--json-schema", GrammarKind::kJsonSchema, flags.json_schema) &&
      take("--grammar", GrammarKind::kGrammar, flags.grammar) &&
      take("--regex", GrammarKind::kRegex, flags.regex)) {
    const bool schema = out && out->kind == GrammarKind::kJsonSchema;
    if (flags.strict_schemas && !schema) {
      return invalid_argument("--strict-schemas says how to read a schema: give --json-schema too");
    }
    if (out) out->strict = flags.strict_schemas;
    return out;
  }
  return invalid_argument(
      "--json-schema, --grammar and --regex exclude each other: give one of them");
}

Status check_prompt(const RunFlags& flags) {
  const RunOptions& o = flags.options;
  const auto refuse = [](const char* why) { return invalid_argument(why); };
  if (o.has_prompt && !o.prompt_file.empty()) {
    return refuse("-p and -f exclude each other: give one of them");
  }
  if (o.chat && (o.has_prompt || !o.prompt_file.empty())) {
    return refuse("--chat reads what is typed, and -p and -f say it already: leave one out");
  }
  if (flags.raw && (flags.use_template || o.chat || o.has_system)) {
    return refuse(
        "--raw goes on with a text, and --template, --chat and --system are of messages: leave one "
        "of them out");
  }
  if (o.chat && !o.prediction_file.empty()) {
    return refuse("--prediction is of one reply, and a chat makes many: leave it out, or give -p");
  }
  if (o.chat && !o.json_file.empty()) {
    return refuse("--json reports one generation, and a chat makes many: leave it out, or give -p");
  }
  const auto has_bytes = [](const std::string& text) { return !is_valid_utf8(text); };
  if (!o.record_file.empty() && std::ranges::any_of(o.stop, has_bytes)) {
    return refuse("--stop is not UTF-8, and --record can hold nothing else: leave one of them out");
  }
  if (!o.record_file.empty() && o.grammar && has_bytes(o.grammar->text)) {
    return refuse(
        "the grammar is not UTF-8, and --record can hold nothing else: leave one of them out");
  }
  return {};
}

// `aerie run MODEL PROMPT`, or what is left of it beside -m and -p.
Status read_words(RunFlags& flags) {
  RunOptions& options = flags.options;
  options.has_prompt = given(*flags.app, "--prompt");
  auto word = flags.words.begin();
  if (!given(*flags.app, "--model")) {
    if (word == flags.words.end()) {
      return invalid_argument(
          "there is no model: give a file, a folder or a name, as in `aerie "
          "run MODEL`");
    }
    options.engine.model = *word++;
  }
  if (word == flags.words.end()) return {};
  if (options.has_prompt || word + 1 != flags.words.end()) {
    return invalid_argument("'{}': the prompt is one word for the shell: put it in quotes",
                            flags.words.back());
  }
  options.prompt = *word;
  options.has_prompt = true;
  return {};
}

// The settings that the command line gives.
SuggestedSampling asked_sampling(const CLI::App& app, const SamplingParams& params) {
  SuggestedSampling asked;
  const auto take = [&](const char* flag, const auto& value, auto& out) {
    if (given(app, flag)) out = value;
  };
  take("--temp", params.temperature, asked.temperature);
  take("--top-k", params.top_k, asked.top_k);
  take("--top-p", params.top_p, asked.top_p);
  take("--min-p", params.min_p, asked.min_p);
  take("--repeat-penalty", params.repetition_penalty, asked.repetition_penalty);
  take("--repeat-last-n", params.penalty_window, asked.penalty_window);
  return asked;
}

// Whether somebody sees it in colour (https://no-color.org).
bool shows_color(int descriptor) {
  const char* const never = std::getenv("NO_COLOR");
  return isatty(descriptor) != 0 && (never == nullptr || *never == '\0');
}

bool wants_color(const std::string& when) {
  return when == "always" || (when == "auto" && shows_color(STDOUT_FILENO));
}

// Where what was typed into chats is kept; empty: nowhere.
std::string history_file() {
  const char* const state = std::getenv("XDG_STATE_HOME");
  const char* const home = std::getenv("HOME");
  std::filesystem::path folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home == '/') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return "";
  }
  folder /= "aerie";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? "" : (folder / "chat_history").string();
}

// What is no prompt is a chat, if somebody is there to type.
void choose_form(RunFlags& flags) {
  RunOptions& options = flags.options;
  if (flags.raw) options.form = PromptForm::kText;
  if (flags.use_template) options.form = PromptForm::kMessage;
  const bool has_text = options.has_prompt || !options.prompt_file.empty();
  if (!has_text && !flags.raw && isatty(STDIN_FILENO) != 0) options.chat = true;
  if (!options.chat) return;
  options.history_file = history_file();
  // For /speculate.
  options.engine.more_speculations = offered_speculations(options.engine.speculation);
}

Expected<RunOptions> finish(RunFlags& flags) {
  RunOptions& options = flags.options;
  AERIE_RETURN_IF_ERROR(read_words(flags));
  options.has_system = given(*flags.app, "--system");
  AERIE_ASSIGN_OR_RETURN(options.grammar, read_grammar(flags));
  AERIE_RETURN_IF_ERROR(read_engine_flags(*flags.app, flags.engine, options.engine));
  choose_form(flags);
  AERIE_RETURN_IF_ERROR(check_prompt(flags));
  options.asked = asked_sampling(*flags.app, options.sampling);
  options.use_suggested = flags.generation_config == "auto";
  if (std::optional<ProfileUse>& use = options.engine.profile_use) {
    use = {options.asked.temperature, options.use_suggested, options.sampling.temperature};
  }
  options.color = wants_color(flags.color);
  options.dim_reasoning = shows_color(STDERR_FILENO);
  options.engine.reuse_prefixes = true;
  for (const std::string& text : flags.logit_bias) {
    AERIE_ASSIGN_OR_RETURN(auto bias, parse_bias(text));
    options.sampling.logit_bias.push_back(bias);
  }
  // Drawn here and reported, so that a run that nobody planned to repeat can be repeated.
  if (!given(*flags.app, "--seed")) options.sampling.seed = std::random_device()();
  return options;
}

void add_sampling_flags(CLI::App& app, RunFlags& flags) {
  SamplingParams& s = flags.options.sampling;
  const FlagGroup group(app, "Sampling");
  add_generation_config(app, flags.generation_config);
  app.add_option("--seed", s.seed, "Seed of all random choices (default: drawn, and reported)");
  add_shown(app, "--temp,--temperature", s.temperature, "0: always the likeliest token");
  add_shown(app, "--top-k", s.top_k, "Keep the K likeliest tokens; 0: all");
  add_shown(app, "--top-p", s.top_p, "Keep the likeliest tokens with this much probability");
  add_shown(app, "--min-p", s.min_p, "Keep tokens this likely, relative to the likeliest");
  add_shown(app, "--repeat-penalty", s.repetition_penalty, "1: none");
  add_shown(app, "--frequency-penalty", s.frequency_penalty);
  add_shown(app, "--presence-penalty", s.presence_penalty);
  add_shown(app, "--repeat-last-n", s.penalty_window,
            "Tokens that penalties look back on; -1: all");
  app.add_option("--logit-bias", flags.logit_bias, "ID=BIAS, may be repeated")
      ->allow_extra_args(false);
  app.add_option("--logprobs", s.logprobs,
                 "Report log-probabilities of this many tokens in --json");
}

}  // namespace

std::string method_choices() {
  std::string choices = fmt::format("{}, {}", kAutoWord, kPlainWord);
  for (const Method* method : methods()) {
    choices.append(", ").append(method->name);
    for (const MethodKey& key : method->keys) {
      if (key.required) choices.append(fmt::format(":{}=...", key.name));
    }
  }
  return choices + " [:KEY=VALUE,...]";
}

std::string isa_choices() {
  std::string choices = "auto";
  for (const kernels::Isa isa : kernels::built_isas()) {
    choices.append(", ").append(kernels::isa_name(isa));
  }
  return choices;
}

Expected<kernels::Isa> parse_isa(const std::string& name) {
  if (name == "auto") return kernels::best_isa();
  for (const kernels::Isa isa : kernels::built_isas()) {
    if (name == kernels::isa_name(isa)) return isa;
  }
  return invalid_argument("--isa {}: give one of {}", name, isa_choices());
}

Expected<kernels::KvType> parse_cache_type(const std::string& name) {
  std::string known;
  for (const auto type : kernels::kAllKvTypes) {
    if (name == kernels::kv_type_name(type)) return type;
    if (!known.empty()) known += " or ";
    known += kernels::kv_type_name(type);
  }
  return invalid_argument("--cache-type {}: give {}", name, known);
}

std::vector<std::string> offered_methods() {
  std::vector<std::string> names;
  for (const Method* method : methods()) {
    if (method->offered) names.emplace_back(method->name);
  }
  return names;
}

std::vector<SpeculativeConfig> offered_speculations(const SpeculativeConfig& chosen) {
  std::vector<SpeculativeConfig> out;
  for (const std::string& name : offered_methods()) {
    if (name == to_string(chosen)) continue;
    // Methods that are offered need no settings.
    auto config = parse_speculative_spec(name);
    if (config.ok()) out.push_back(std::move(*config));
  }
  return out;
}

void add_generation_config(CLI::App& app, std::string& choice) {
  add_shown(app, "--generation-config", choice,
            "Sampling that is not asked for: auto, as the model's makers recommend; none (vLLM's "
            "vllm), the defaults here")
      ->check(CLI::IsMember({"auto", "none", "vllm"}));
}

void add_drafter_flags(CLI::App& app, EngineFlags& flags) {
  std::string names = fmt::format("{},{}", kAutoWord, kPlainWord);
  for (const Method* method : methods()) names.append(",").append(method->name);
  CLI::Option* const speculate = app.add_option(
      "--speculate", flags.speculate,
      fmt::format("{}; several, the cheapest first, with commas between them", method_choices()));
  offer(speculate, names)->default_str("auto");
  app.add_option("--speculative-config", flags.speculative_config, "The same as a JSON object");
  app.add_option("--draft-type", flags.draft_type,
                 "Convert matrices of trained heads at load: q8_0, q4_0, bf16, ... (default: as "
                 "they are)");
}

Expected<SpeculativeConfig> read_drafter_flags(const CLI::App& app, const EngineFlags& flags,
                                               SpeculativeConfig unsaid) {
  const bool spec = given(app, "--speculate");
  const bool json = given(app, "--speculative-config");
  if (spec && json) {
    return invalid_argument(
        "--speculate and --speculative-config say the same in two ways: give one of them");
  }
  SpeculativeConfig config = std::move(unsaid);
  if (spec) {
    AERIE_ASSIGN_OR_RETURN(config,
                           in_context(parse_speculative_spec(flags.speculate), "--speculate"));
  } else if (json) {
    AERIE_ASSIGN_OR_RETURN(config, in_context(parse_speculative_json(flags.speculative_config),
                                              "--speculative-config"));
  }
  if (!flags.draft_type.empty()) {
    AERIE_RETURN_IF_ERROR(parse_type("--draft-type", flags.draft_type).status());
    if (!config.set_draft_type(flags.draft_type)) {
      return invalid_argument(
          "--draft-type is of trained heads: give one with --speculate METHOD:model=...");
    }
  }
  return config;
}

void add_speculation_flags(CLI::App& app, EngineFlags& flags, EngineOptions& e) {
  const FlagGroup group(app, "Speculation");
  add_drafter_flags(app, flags);
  app.add_option(
      "--profile", e.profile,
      "What `aerie tune` wrote: its choice drafts unless --speculate says what does, and "
      "what passes cost need not be measured");
  offer(add_shown(app, "--verify", flags.verify, verify_rule_choices()),
        names_of(kVerifyRules, verify_rule_name));
}

void add_engine_flags(CLI::App& app, EngineFlags& flags, EngineOptions& e,
                      const char* context_flag) {
  const FlagGroup group(app, "Engine");
  app.add_option(context_flag, e.context,
                 e.default_context > 0
                     ? "Tokens of context (default: the model's, at most 4096)"
                     : "Tokens of context (default: the model's, as far as memory goes)")
      ->check(CLI::Range(2, 1 << 26));
  add_threads(app, e.threads);
  app.add_option("--draft-threads", e.draft_threads,
                 "Threads of models and heads that draft (default: --threads)")
      ->check(CLI::Range(1, 1024));
  add_tensor_parallel(app, e.tensor_parallel);
  add_shown(app, "--prefill-chunk", e.prefill_chunk, "Prompt tokens in a pass")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--type", flags.type,
                 "Convert float weights at load: q8_0, q4_0, bf16, ... (default: as they are)");
  app.add_option("--chat-template", e.chat_template,
                 "In the place of the model's own: a file with it, or the Jinja itself");
  app.add_option("--weight-cache", e.weight_cache,
                 "A folder to keep packed weights in, for a quicker start the next time");
  offer(add_shown(app, "--cache-type", flags.cache_type, kCacheTypeHelp),
        names_of(kernels::kAllKvTypes, kernels::kv_type_name));
  offer(add_shown(app, "--isa", flags.isa, isa_choices()), without_spaces(isa_choices()));
  add_device_flags(app, flags.device);
}

Status read_engine_flags(const CLI::App& app, const EngineFlags& flags, EngineOptions& out) {
  AERIE_ASSIGN_OR_RETURN(out.speculation, read_drafter_flags(app, flags, auto_speculation()));
  if (!given(app, "--speculate") && !given(app, "--speculative-config")) out.profile_use.emplace();
  AERIE_ASSIGN_OR_RETURN(out.rule, in_context(verify_rule_from_name(flags.verify), "--verify"));
  AERIE_ASSIGN_OR_RETURN(out.isa, parse_isa(flags.isa));
  AERIE_ASSIGN_OR_RETURN(out.cache_type, parse_cache_type(flags.cache_type));
  AERIE_ASSIGN_OR_RETURN(out.weight_type, parse_type("--type", flags.type));
  return read_device_flags(flags.device, out);
}

std::function<Expected<RunOptions>()> add_run_flags(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  flags->app = &app;
  RunOptions& o = flags->options;
  app.add_option("MODEL", flags->words, "The model (or -m), and what to say, in quotes (or -p)")
      ->expected(0, 64);
  app.add_option("-m,--model", o.engine.model, kModelHelp);
  app.add_option("-p,--prompt", o.prompt, "A message; for a model without a chat template, a text");
  app.add_option("-f,--file", o.prompt_file, "A file with the prompt; -: standard input");
  app.add_flag("--raw", flags->raw, "Go on with the prompt as a text, without the chat template");
  app.add_option("--system", o.system, "The system message");
  app.add_flag("--chat", o.chat, "Chat, where nobody sits at a terminal, too");
  app.add_flag("--template", flags->use_template, "Fail where there is no chat template to apply");
  app.add_option("-n,--max-tokens", o.max_tokens, "Tokens to generate (default: until the end)")
      ->check(CLI::Range(1, 1 << 26));
  app.add_option("--stop", o.stop, "End before this text; may be repeated")
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", o.ignore_eos, "Go on after an end token");
  app.add_option("--json-schema", flags->json_schema, "Replies are JSON that this schema allows");
  app.add_flag("--strict-schemas", flags->strict_schemas, kStrictSchemasHelp);
  app.add_option("--grammar", flags->grammar, "Replies keep to this grammar, in GBNF or Lark");
  app.add_option("--regex", flags->regex, "Replies match this expression as a whole");
  app.add_option("--json", o.json_file,
                 "Write ids and figures to this file; -: standard output, in place of the text");
  app.add_option("--record", o.record_file,
                 "Add a line for each reply to this file, for `aerie audit`");
  app.add_flag("-q,--quiet", o.quiet, "No closing line");
  app.add_flag("--color{auto}", flags->color,
               "Tokens in the colour of where they came from: auto (on a terminal), always, never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  add_sampling_flags(app, *flags);
  add_speculation_flags(app, flags->engine, o.engine);
  app.add_option("--prediction", o.prediction_file,
                 "A file with the text that the reply will resemble, for the method prediction")
      ->group("Speculation");
  add_engine_flags(app, flags->engine, o.engine);
  return [flags] { return finish(*flags); };
}

std::function<Expected<ConvertOptions>()> add_convert_flags(CLI::App& app) {
  struct ConvertFlags {
    ConvertOptions options;
    std::string type;
  };
  auto flags = std::make_shared<ConvertFlags>();
  ConvertOptions& o = flags->options;
  app.add_option("MODEL", o.input, std::string(kModelHelp) + ", or a draft head")->required();
  app.add_option("OUT,-o,--output", o.output,
                 "The GGUF file to write, NAME.gguf; of safetensors, a folder (with --type q8_0 or "
                 "q4_0); of PyTorch's files, a folder or a .safetensors file")
      ->required();
  app.add_option("--type", flags->type,
                 "Type of the weights: q8_0, q4_0, bf16, ... (default: as they are)");
  app.add_flag("--requantize", o.requantize, "Convert weights that are quantised already, too");
  add_quiet(app);
  add_threads(app, o.threads);
  return [flags]() -> Expected<ConvertOptions> {
    AERIE_ASSIGN_OR_RETURN(flags->options.weight_type, parse_type("--type", flags->type));
    return flags->options;
  };
}

}  // namespace aerie

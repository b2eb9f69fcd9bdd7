#include "measure/spec/spec_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "base/progress.h"
#include "measure/prompt_files.h"

namespace aerie::measure {
namespace {

constexpr int kMostSpecRepeats = 1000;
constexpr int kMostTokens = 1 << 26;
constexpr int kWarmUpTokens = 8;

Status check(const SpecOptions& options) {
  // The first token counts for the prompt.
  if (options.max_tokens < 2 || options.max_tokens > kMostTokens) {
    return invalid_argument("--max-tokens {}: give 2 to {}", options.max_tokens, kMostTokens);
  }
  if (options.repeats < 1 || options.repeats > kMostSpecRepeats) {
    return invalid_argument("--repeat {}: give 1 to {}", options.repeats, kMostSpecRepeats);
  }
  if (options.temperatures.empty()) return invalid_argument("give at least one --temperature");
  for (const double temperature : options.temperatures) {
    if (!std::isfinite(temperature) || temperature < 0.0) {
      return invalid_argument("--temperature {}: give 0 or more", temperature);
    }
  }
  return {};
}

// Plain decoding first, then the others as given.
Expected<std::vector<SpeculativeConfig>> methods_of(const SpecOptions& options) {
  std::vector<SpeculativeConfig> methods(1);
  std::vector<std::string> names = {to_string(methods[0])};
  bool plain_named = false;
  for (SpeculativeConfig config : options.methods) {
    config.open_gate();
    const std::string name = to_string(config);
    const bool plain = !config.enabled();
    if (plain ? plain_named : std::ranges::find(names, name) != names.end()) {
      return invalid_argument("--method {} is given twice: leave one of them out", name);
    }
    plain_named |= plain;
    if (plain) continue;
    methods.push_back(config);
    names.push_back(name);
  }
  return methods;
}

class Run {
 public:
  Run(const SpecOptions& options, Engine& engine, const std::vector<Prompt>& prompts,
      std::vector<std::string> methods)
      : options_(options), engine_(engine), prompts_(prompts), methods_(std::move(methods)) {}

  // Whether all first turns leave room for a reply, and everything is in the caches.
  Status prepare();
  // The replies of all prompts at this temperature, whole prompts only.
  Status run(double temperature, std::vector<Reply>& replies);

  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }
  int prompts_done() const { return prompts_done_; }
  int turns_left_out() const { return turns_left_out_; }

 private:
  // What the turns of a prompt have come to.
  struct Conversation {
    const Prompt* prompt = nullptr;
    double temperature = 0;
    std::vector<ChatMessage> messages;
    std::vector<int32_t> ids;
  };

  Status encode(Conversation& conversation) const;
  bool fits(const Conversation& conversation) const;
  // All repetitions of a reply.
  struct Repeated {
    Reply reply;
    std::vector<std::vector<Tally>> tallies;  // [method][repetition]
  };

  Status run_prompt(Conversation& conversation, std::vector<Repeated>& replies);
  Status run_turn(const Conversation& conversation, Repeated& reply, Generation& plain);
  Expected<Generation> generate(const Conversation& conversation, size_t method, int max_tokens);
  Status check_ids(const Conversation& conversation, size_t method, const Generation& plain,
                   const Generation& own) const;

  const SpecOptions& options_;
  Engine& engine_;
  const std::vector<Prompt>& prompts_;
  std::vector<std::string> methods_;  // their names
  size_t first_ = 0;                  // the method that begins
  int prompts_done_ = 0;
  int turns_left_out_ = 0;
};

// As `aerie run` has it, with and without --template.
Status Run::encode(Conversation& conversation) const {
  std::string text;
  const bool chat = conversation.prompt->chat && engine_.parts().chat_template().ok();
  if (chat) {
    AERIE_ASSIGN_OR_RETURN(
        text, in_context(engine_.parts().chat_template()->render(conversation.messages, true),
                         conversation.prompt->name));
  } else {
    for (const ChatMessage& message : conversation.messages) {
      if (!text.empty()) text += "\n\n";
      text += message.content;
    }
  }
  conversation.ids.clear();
  return engine_.parts().tokenizer().encode(text, {true, chat}, conversation.ids);
}

bool Run::fits(const Conversation& conversation) const {
  return conversation.ids.size() + static_cast<size_t>(options_.max_tokens) <=
         static_cast<size_t>(engine_.parts().options.context);
}

// What comes before the first turn.
std::vector<ChatMessage> opening(const Prompt& prompt) {
  if (prompt.system.empty()) return {};
  return {{"system", prompt.system}};
}

Status Run::prepare() {
  Conversation conversation;
  for (const Prompt& prompt : prompts_) {
    conversation.prompt = &prompt;
    conversation.messages = opening(prompt);
    conversation.messages.push_back({"user", prompt.turns[0]});
    AERIE_RETURN_IF_ERROR(encode(conversation));
    if (conversation.ids.empty()) {
      return invalid_argument("{}: the text has no tokens; leave it out", prompt.name);
    }
    if (fits(conversation)) continue;
    return invalid_argument(
        "{}: {} tokens and a reply of {} do not fit into a context of {}; raise --ctx, lower "
        "--max-tokens or leave the prompt out",
        prompt.name, conversation.ids.size(), options_.max_tokens, engine_.parts().options.context);
  }
  for (size_t method = 0; method < methods_.size(); ++method) {
    AERIE_RETURN_IF_ERROR(
        generate(conversation, method, std::min(kWarmUpTokens, options_.max_tokens)).status());
  }
  return {};
}

Status Run::run(double temperature, std::vector<Reply>& replies) {
  std::vector<std::vector<Repeated>> all(prompts_.size());  // turns of each prompt
  const int of = options_.repeats * static_cast<int>(prompts_.size());
  Progress progress(fmt::format("{}prompts at temperature {:g}", options_.label, temperature), of);
  int done = 0;
  for (int repeat = 0; repeat < options_.repeats && !cancelled(); ++repeat) {
    // A drafter that remembers replies must not have seen the very same one.
    engine_.forget();
    for (size_t i = 0; i < prompts_.size(); ++i) {
      Conversation conversation;
      conversation.prompt = &prompts_[i];
      conversation.messages = opening(prompts_[i]);
      conversation.temperature = temperature;
      std::vector<Repeated> turns = all[i];
      AERIE_RETURN_IF_ERROR(run_prompt(conversation, turns));
      if (cancelled()) break;
      all[i] = std::move(turns);
      if (repeat == 0) prompts_done_ = std::max(prompts_done_, static_cast<int>(i) + 1);
      progress.set(++done);
      if (options_.progress) options_.progress(done, of);
    }
  }
  for (std::vector<Repeated>& turns : all) {
    for (Repeated& turn : turns) {
      for (std::vector<Tally>& of_method : turn.tallies) {
        turn.reply.methods.push_back(median_of(std::move(of_method)));
      }
      replies.push_back(std::move(turn.reply));
    }
  }
  return {};
}

// Adds a repetition of each turn.
Status Run::run_prompt(Conversation& conversation, std::vector<Repeated>& replies) {
  const std::vector<std::string>& turns = conversation.prompt->turns;
  for (size_t turn = 0; turn < turns.size(); ++turn) {
    conversation.messages.push_back({"user", turns[turn]});
    AERIE_RETURN_IF_ERROR(encode(conversation));
    if (!fits(conversation)) {
      // The first repetition counts them.
      if (replies.empty() || replies[0].tallies[0].size() == 1) {
        turns_left_out_ += static_cast<int>(turns.size() - turn);
      }
      return {};
    }
    if (replies.size() == turn) replies.emplace_back();
    Generation plain;
    AERIE_RETURN_IF_ERROR(run_turn(conversation, replies[turn], plain));
    if (cancelled()) return {};
    conversation.messages.push_back({"assistant", plain.text});
  }
  return {};
}

// `plain` becomes plain decoding's reply.
Status Run::run_turn(const Conversation& conversation, Repeated& reply, Generation& plain) {
  std::vector<Generation> generations(methods_.size());
  for (size_t i = 0; i < methods_.size(); ++i) {
    const size_t method = (first_ + i) % methods_.size();
    AERIE_ASSIGN_OR_RETURN(generations[method],
                           generate(conversation, method, options_.max_tokens));
    if (cancelled()) return {};
  }
  ++first_;
  reply.tallies.resize(methods_.size());
  for (size_t method = 0; method < methods_.size(); ++method) {
    AERIE_RETURN_IF_ERROR(check_ids(conversation, method, generations[0], generations[method]));
    reply.tallies[method].push_back(tally_of(generations[method]));
  }
  plain = std::move(generations[0]);
  reply.reply.prompt = conversation.prompt->number;
  reply.reply.task = conversation.prompt->task;
  reply.reply.looped = is_looped(plain.tokens);
  return {};
}

Expected<Generation> Run::generate(const Conversation& conversation, size_t method,
                                   int max_tokens) {
  Request request;
  request.prompt = conversation.ids;
  request.sampling.temperature = conversation.temperature;
  request.sampling.seed = options_.seed + static_cast<uint64_t>(conversation.prompt->number);
  request.max_tokens = max_tokens;
  request.speculate = method > 0;
  request.speculation = static_cast<int>(method);
  request.cancel = options_.cancel;
  auto generation = engine_.generate(request, nullptr);
  if (generation.ok()) return generation;
  return generation.status().with_context(conversation.prompt->name);
}

Status Run::check_ids(const Conversation& conversation, size_t method, const Generation& plain,
                      const Generation& own) const {
  if (options_.engine.rule != VerifyRule::kExact && conversation.temperature > 0.0) return {};
  const std::string where = fmt::format(
      "{}, turn {}, temperature {:g}, method {}", conversation.prompt->name,
      (conversation.messages.size() + 1) / 2, conversation.temperature, methods_[method]);
  return check_same_ids(where, plain.tokens, own.tokens);
}

// Seconds of passes of so many rows, before the engine takes the memory.
Expected<VerifyReport> time_passes(const SpecOptions& options,
                                   const std::vector<SpeculativeConfig>& methods) {
  VerifyOptions verify;
  verify.engine = options.engine;
  verify.rows = options.pass_rows;
  for (const SpeculativeConfig& config : methods) verify.rows.push_back(1 + config.tokens());
  verify.contexts = {options.pass_context};
  verify.repeats = options.pass_repeats;
  verify.memory_mib = options.memory_mib;
  return bench_verify(verify);
}

void add_figures(std::span<const Reply> replies, const std::vector<SpeculativeConfig>& methods,
                 double temperature, uint64_t seed, SpecReport& report) {
  const std::vector<Reply> unlooped = without_loops(replies);
  for (size_t method = 0; method < methods.size(); ++method) {
    MethodFigures& out = report.methods.emplace_back();
    out.method = to_string(methods[method]);
    out.to_use = to_string(methods[method].with_default_gate());
    out.decides = methods[method].combination == Combination::kAuto;
    out.temperature = temperature;
    out.all = summarize(replies, method, seed);
    out.unlooped = summarize(unlooped, method, seed);
    for (const std::string& task : tasks_of(replies)) {
      out.tasks.push_back({task, summarize(of_task(replies, task), method, seed)});
    }
  }
}

SpecReport head_of(const SpecOptions& options, const Engine& engine) {
  SpecReport report;
  report.model = options.engine.model;
  report.threads = engine.parts().options.threads;
  report.isa = options.engine.isa;
  report.cache_type = options.engine.cache_type;
  report.rule = options.engine.rule;
  report.context = engine.parts().options.context;
  report.max_tokens = options.max_tokens;
  report.repeats = options.repeats;
  report.seed = options.seed;
  report.chat_template = engine.parts().chat_template().ok();
  report.datasets = options.datasets;
  return report;
}

}  // namespace

Expected<SpecReport> bench_spec(const SpecOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  AERIE_ASSIGN_OR_RETURN(const std::vector<SpeculativeConfig> methods, methods_of(options));
  AERIE_ASSIGN_OR_RETURN(const PromptFiles files, PromptFiles::locate(options.datasets));
  AERIE_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts,
                         read_prompts(files.paths(), options.selection));
  std::vector<std::string> names;
  names.reserve(methods.size());
  for (const SpeculativeConfig& method : methods) names.push_back(to_string(method));
  VerifyReport passes;
  if (!options.pass_rows.empty()) {
    AERIE_ASSIGN_OR_RETURN(passes, time_passes(options, methods));
  }
  EngineOptions engine_options = options.engine;
  engine_options.speculation = methods[0];
  engine_options.more_speculations.assign(methods.begin() + 1, methods.end());
  AERIE_ASSIGN_OR_RETURN(const auto engine, Engine::open(engine_options));
  SpecReport report = head_of(options, *engine);
  report.passes = std::move(passes);
  report.passes.limits.device = engine->parts().device_make();

  for (const double temperature : options.temperatures) {
    Run run(options, *engine, prompts, names);
    AERIE_RETURN_IF_ERROR(run.prepare());
    std::vector<Reply> replies;
    AERIE_RETURN_IF_ERROR(run.run(temperature, replies));
    add_figures(replies, methods, temperature, options.seed, report);
    report.prompts = std::max(report.prompts, run.prompts_done());
    report.turns_left_out = std::max(report.turns_left_out, run.turns_left_out());
    report.interrupted = run.cancelled();
    if (report.interrupted) break;
  }
  return report;
}

}  // namespace aerie::measure

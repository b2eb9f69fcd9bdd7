#include "measure/passes/decode_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "base/progress.h"
#include "core/random_tokens.h"
#include "measure/passes/computer.h"
#include "measure/report_head.h"
#include "report/text_file.h"

namespace aerie::measure {
namespace {

Status check(const DecodeOptions& options) {
  const auto refuse = [](const char* flag, int value, int least, int most) {
    return invalid_argument("{} {}: give {} to {}", flag, value, least, most);
  };
  constexpr int kMostPositions = 1 << 26;
  if (options.contexts.empty()) return invalid_argument("give at least one context");
  for (const int context : options.contexts) {
    if (context < 1 || context > kMostPositions) {
      return refuse("--context", context, 1, kMostPositions);
    }
  }
  // The first token counts for the prompt.
  if (options.tokens < 2 || options.tokens > kMostPositions) {
    return refuse("--tokens", options.tokens, 2, kMostPositions);
  }
  if (options.repeats < 1 || options.repeats > 10000) {
    return refuse("--repeat", options.repeats, 1, 10000);
  }
  return check_memory(options.memory_mib);
}

// The tokens that every prompt begins with.
Expected<std::vector<int32_t>> prompt_tokens(const DecodeOptions& options, const Engine& engine,
                                             size_t count) {
  std::vector<int32_t> tokens;
  if (!options.text_file.empty()) {
    AERIE_ASSIGN_OR_RETURN(const std::string text, read_text_file(options.text_file, "--text"));
    AERIE_RETURN_IF_ERROR(engine.parts().tokenizer().encode(text, {true, false}, tokens));
    if (tokens.empty()) {
      return invalid_argument("--text {}: the text has no tokens", options.text_file);
    }
    const size_t once = tokens.size();
    for (size_t i = once; i < count; ++i) tokens.push_back(tokens[i - once]);
  }
  RandomTokens random;
  while (tokens.size() < count) tokens.push_back(random.next(engine.parts().config().vocab));
  return tokens;
}

// One value for each repetition.
struct Series {
  int context = 0;
  std::vector<double> prompt, plain, speculative, speedup, accepted_length;
  RoundTimes plain_round, round;
};

// Of a reply, its prompt apart.
RoundTimes round_times(const Generation& reply) {
  const double rounds = std::max<double>(1.0, static_cast<double>(reply.stats.rounds));
  const auto each = [&](Stage stage) {
    return 1e6 * (reply.times.of(stage) - reply.prompt_times.of(stage)) / rounds;
  };
  RoundTimes times;
  times.all =
      1e6 * static_cast<double>(reply.tokens.size() - 1) / reply.tokens_per_second() / rounds;
  times.draft = each(Stage::kDraft);
  times.verify = each(Stage::kVerify);
  times.rest = times.all - times.draft - times.verify;
  return times;
}

class Run {
 public:
  Run(const DecodeOptions& options, Engine& engine, std::vector<int32_t> prompt)
      : options_(options), engine_(engine), prompt_(std::move(prompt)) {}

  Status repeat(Series& series);
  // The device's own time for passes.
  Status time_device(Series& series);

 private:
  Expected<Generation> generate(int context, bool speculate);
  device::Device* device() const {
    const auto& opened = engine_.parts().device;
    return opened ? opened->device.get() : nullptr;
  }

  const DecodeOptions& options_;
  Engine& engine_;
  std::vector<int32_t> prompt_;
};

Expected<Generation> Run::generate(int context, bool speculate) {
  Request request;
  request.prompt.assign(prompt_.begin(), prompt_.begin() + context);
  request.max_tokens = options_.tokens;
  request.ignore_eos = true;
  request.speculate = speculate;
  return engine_.generate(request, nullptr);
}

Status Run::repeat(Series& series) {
  AERIE_ASSIGN_OR_RETURN(const Generation plain, generate(series.context, false));
  series.prompt.push_back(plain.prompt_tokens_per_second());
  series.plain.push_back(plain.tokens_per_second());
  if (device() != nullptr) series.plain_round = round_times(plain);
  if (engine_.parts().drafter() == nullptr) return {};
  AERIE_ASSIGN_OR_RETURN(const Generation drafted, generate(series.context, true));
  if (device() != nullptr) series.round = round_times(drafted);
  if (options_.engine.rule == VerifyRule::kExact && drafted.tokens != plain.tokens) {
    return internal_error("speculation changed the tokens");
  }
  series.speculative.push_back(drafted.tokens_per_second());
  series.speedup.push_back(drafted.tokens_per_second() / plain.tokens_per_second());
  series.accepted_length.push_back(drafted.stats.mean_accepted_length());
  return {};
}

Status Run::time_device(Series& series) {
  if (device() == nullptr) return {};
  device()->time_graphs(true);
  for (const bool speculate : {false, true}) {
    if (speculate && engine_.parts().drafter() == nullptr) continue;
    const double before = device()->graph_seconds();
    AERIE_ASSIGN_OR_RETURN(const Generation reply, generate(series.context, speculate));
    RoundTimes& times = speculate ? series.round : series.plain_round;
    times.device = 1e6 * (device()->graph_seconds() - before) /
                   std::max<double>(1.0, static_cast<double>(reply.stats.rounds));
  }
  device()->time_graphs(false);
  return {};
}

Speed speed_of(const std::vector<double>& values) {
  return {median(values), spread(values)};
}

Json round_json(const RoundTimes& times) {
  return {{"all", times.all},
          {"draft", times.draft},
          {"verify", times.verify},
          {"rest", times.rest},
          {"device", times.device}};
}

std::string round_text(const char* what, int context, const RoundTimes& times) {
  if (times.all == 0.0) return "";
  return fmt::format(
      "{:>8} {:<6} a pass: {:.0f} us, of that {:.0f} drafting, {:.0f} verifying; the device "
      "itself {:.0f}\n",
      context, what, times.all, times.draft, times.verify, times.device);
}

Json speed_json(const Speed& speed) {
  return {{"tokens_per_second", speed.median}, {"spread", spread_json(speed.spread)}};
}

std::string speed_text(const Speed& speed) {
  return fmt::format("{:>9.1f} {:>17}", speed.median,
                     fmt::format("({:.1f}-{:.1f})", speed.spread.lowest, speed.spread.highest));
}

}  // namespace

Expected<DecodeReport> bench_decode(const DecodeOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  const int longest = *std::ranges::max_element(options.contexts);
  EngineOptions engine_options = options.engine;
  engine_options.context = longest + options.tokens;
  engine_options.speculation.open_gate();
  AERIE_ASSIGN_OR_RETURN(const auto engine, Engine::open(engine_options));
  AERIE_ASSIGN_OR_RETURN(std::vector<int32_t> prompt,
                         prompt_tokens(options, *engine, static_cast<size_t>(longest)));
  Run run(options, *engine, std::move(prompt));
  std::vector<Series> all;
  for (const int context : options.contexts) all.emplace_back().context = context;
  Progress progress("decoding", (options.repeats + 1) * static_cast<int64_t>(all.size()));
  for (int i = 0; i <= options.repeats; ++i) {
    for (Series& series : all) {
      AERIE_RETURN_IF_ERROR(run.repeat(series));
      progress.add(1);
    }
    // The first warms up.
    if (i == 0) {
      for (Series& series : all) series = {series.context, {}, {}, {}, {}, {}, {}, {}};
    }
  }
  for (Series& series : all) AERIE_RETURN_IF_ERROR(run.time_device(series));
  DecodeReport report;
  report.model = options.engine.model;
  report.speculation = to_string(engine_options.speculation);
  report.threads = engine->parts().options.threads;
  report.tokens = options.tokens;
  report.isa = options.engine.isa;
  for (const Series& s : all) {
    report.points.push_back({s.context, speed_of(s.prompt), speed_of(s.plain),
                             speed_of(s.speculative), median(s.speedup), median(s.accepted_length),
                             s.plain_round, s.round});
  }
  AERIE_ASSIGN_OR_RETURN(Computer computer, Computer::open(engine->parts(), options.memory_mib));
  std::array<bool, kernels::kDotCount> wanted = {};
  wanted[static_cast<size_t>(kernels::Dot::kFloat)] = true;
  AERIE_ASSIGN_OR_RETURN(report.limits, computer.measure(wanted));
  return report;
}

std::string to_text(const DecodeReport& report) {
  const bool drafts = report.speculation != "none";
  std::string text = head_text(report.model, report.threads, report.isa, report.limits);
  text += fmt::format("tokens/s, {} tokens decoded; median (lowest-highest)\n", report.tokens);
  text += fmt::format("{:>8} {:>27} {:>27}", "context", "prompt", "plain");
  if (drafts) text += fmt::format(" {:>27} {:>8} {:>6}", report.speculation, "speed-up", "τ");
  text += "\n";
  for (const DecodePoint& p : report.points) {
    text += fmt::format("{:>8} {} {}", p.context, speed_text(p.prompt), speed_text(p.plain));
    if (drafts) {
      text += fmt::format(" {} {:>8.2f} {:>6.2f}", speed_text(p.speculative), p.speedup,
                          p.accepted_length);
    }
    text += "\n";
  }
  for (const DecodePoint& p : report.points) {
    text += round_text("plain", p.context, p.plain_round);
    text += round_text("drafts", p.context, p.round);
  }
  return text;
}

std::string to_json(const DecodeReport& report) {
  Json out = head_json(report.model, report.threads, report.isa, report.limits);
  out["speculate"] = report.speculation;
  out["tokens"] = report.tokens;
  out["points"] = Json::array();
  for (const DecodePoint& p : report.points) {
    Json point = {
        {"context", p.context}, {"prompt", speed_json(p.prompt)}, {"plain", speed_json(p.plain)}};
    if (report.speculation != "none") {
      point["speculative"] = speed_json(p.speculative);
      point["speedup"] = p.speedup;
      point["mean_accepted_length"] = p.accepted_length;
    }
    if (p.plain_round.all > 0.0) point["plain_round_us"] = round_json(p.plain_round);
    if (p.round.all > 0.0) point["round_us"] = round_json(p.round);
    out["points"].push_back(std::move(point));
  }
  return out.dump(2) + "\n";
}

}  // namespace aerie::measure

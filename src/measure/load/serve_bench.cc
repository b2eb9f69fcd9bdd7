#include "measure/load/serve_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "format/json.h"
#include "format/text.h"
#include "measure/passes/machine.h"
#include "measure/prompt_files.h"

namespace aerie::measure {
namespace {

using State = ServeSample::State;

constexpr int kMostClients = 1024;
constexpr int kMostDepth = 64;
constexpr int kMostRequests = 1'000'000;
constexpr uint64_t kSeedsOfAPass = 1'000'003;  // apart: prompts that are sent again

Status check(const ServeOptions& o) {
  if (o.target.url.empty()) {
    return invalid_argument("--url must name a server: http://127.0.0.1:8000/v1");
  }
  if (o.concurrency.empty() || o.settings.empty()) {
    return invalid_argument("there is nothing to run");
  }
  for (const int clients : o.concurrency) {
    if (clients < 1 || clients > kMostClients) {
      return invalid_argument("--concurrency must be 1 to {}, not {}", kMostClients, clients);
    }
  }
  if (!(o.rate > 0.0)) {
    return invalid_argument("--rate must be above 0 (requests in a second), or inf");
  }
  if (o.num_prompts < 0 || o.num_prompts > kMostRequests) {
    return invalid_argument("--num-prompts must be 0 to {}", kMostRequests);
  }
  if (o.rounds < 1) return invalid_argument("--rounds must be 1 or more");
  if (o.target.max_tokens < 1) return invalid_argument("--max-tokens must be 1 or more");
  if (!(o.target.temperature >= 0.0)) return invalid_argument("--temperature must be 0 or more");
  if (!o.target.extra.is_object()) return invalid_argument("--extra-body must be a JSON object");
  return {};
}

// What it says about its first model; null if it says nothing.
Expected<Json> read_model(HttpClient& client, const ServeTarget& target) {
  const std::string url = target.url + "/models";
  AERIE_ASSIGN_OR_RETURN(const HttpResponse response, client.get(url));
  if (response.status == 401 || response.status == 403) {
    return invalid_argument("{}: HTTP status {}: give the server's key with --api-key-file", url,
                            response.status);
  }
  if (response.status != 200) return Json();
  AERIE_ASSIGN_OR_RETURN(const Json answer, parse_json(response.body, url));
  if (!answer.is_object() || !answer.contains("data")) return Json();
  const Json& data = answer["data"];
  return data.is_array() && !data.empty() && data[0].is_object() ? data[0] : Json();
}

// One setting at one number of clients, round by round.
struct Cell {
  std::vector<ServeSample> samples;
  double seconds = 0;
  std::optional<DraftCounters> counters;
  std::vector<ServeFigures> rounds;  // those that were not interrupted
};

class ServeBench {
 public:
  ServeBench(const ServeOptions& options, std::vector<Prompt> prompts, HttpClient client)
      : options_(options),
        target_(options.target),
        prompts_(std::move(prompts)),
        client_(std::move(client)) {}

  Expected<ServeReport> run();

 private:
  Status look_at_server();
  Status probe();
  Status warm_up();
  Status run_at(int concurrency);
  Status run_once(int concurrency, int round, size_t setting, Cell& cell);
  // No reply longer than `most` tokens.
  std::vector<std::string> requests(size_t setting, int most) const;
  std::optional<DraftCounters> read_counters();
  void note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }
  size_t count() const {
    return options_.num_prompts > 0 ? static_cast<size_t>(options_.num_prompts) : prompts_.size();
  }

  const ServeOptions& options_;
  ServeTarget target_;
  std::vector<Prompt> prompts_;
  HttpClient client_;
  ServeReport report_;
};

Status ServeBench::look_at_server() {
  AERIE_ASSIGN_OR_RETURN(const Json model, read_model(client_, target_));
  if (target_.model.empty() && model.is_object() && model.contains("id") &&
      model["id"].is_string()) {
    target_.model = model["id"].get<std::string>();
  }
  report_.model = target_.model;
  return {};
}

std::vector<std::string> ServeBench::requests(size_t setting, int most) const {
  ServeTarget target = target_;
  std::vector<std::string> bodies;
  for (size_t i = 0; i < count(); ++i) {
    const Prompt& prompt = prompts_[i % prompts_.size()];
    target.max_tokens =
        std::min(most, prompt.max_tokens > 0 ? prompt.max_tokens : target_.max_tokens);
    const uint64_t seed =
        target.seed + static_cast<uint64_t>(prompt.number) + i / prompts_.size() * kSeedsOfAPass;
    bodies.push_back(serve_request(target, prompt, seed, options_.settings[setting].value));
  }
  return bodies;
}

Status ServeBench::probe() {
  for (size_t s = 0; s < options_.settings.size(); ++s) {
    const std::string body = requests(s, 4).front();
    const ServeSample sample = ask_streaming(client_, target_, body);
    if (sample.state != State::kFailed) continue;
    return invalid_argument("the first request (speculation: {}) failed: {}",
                            options_.settings[s].name, sample.error);
  }
  return {};
}

Status ServeBench::warm_up() {
  const size_t runs =
      options_.concurrency.size() * options_.settings.size() * static_cast<size_t>(options_.rounds);
  report_.warmed = runs > 1;
  if (!report_.warmed) return {};
  note(fmt::format("every prompt once, to warm up: {}", count()));
  const std::vector<std::string> bodies = requests(0, 1);
  ServeLoad load;
  load.concurrency = std::ranges::max(options_.concurrency);
  return run_load(target_, bodies, load).status();
}

std::optional<DraftCounters> ServeBench::read_counters() {
  const auto page = client_.get(target_.root() + "/metrics");
  if (!page.ok() || page->status != 200) return std::nullopt;
  return read_draft_counters(page->body);
}

Status ServeBench::run_once(int concurrency, int round, size_t setting, Cell& cell) {
  const std::vector<std::string> bodies = requests(setting, INT_MAX);
  const std::optional<DraftCounters> before = read_counters();
  ServeLoad load;
  load.concurrency = concurrency;
  load.rate = options_.rate;
  load.seed = target_.seed + static_cast<uint64_t>(round);  // the same for all settings
  AERIE_ASSIGN_OR_RETURN(LoadResult result, run_load(target_, bodies, load));
  const std::optional<DraftCounters> after = read_counters();
  const ServeFigures figures = summarize(result.samples, result.seconds, std::nullopt);
  if (!target_.cancelled()) cell.rounds.push_back(figures);
  if (before && after) {
    if (!cell.counters) cell.counters.emplace();
    cell.counters->add(after->since(*before));
  }
  cell.seconds += result.seconds;
  std::ranges::move(result.samples, std::back_inserter(cell.samples));
  note(fmt::format("{} clients, speculation {}, round {} of {}: {:.1f} tokens/s{}", concurrency,
                   options_.settings[setting].name, round + 1, options_.rounds,
                   figures.output_per_second,
                   figures.failed > 0 ? fmt::format(", {} failed", figures.failed) : ""));
  return {};
}

// Rounds in which both got through whole.
void compare(const Cell& own, const Cell& base, ServeRun& out) {
  std::vector<std::pair<double, double>> throughput, pace;
  for (size_t i = 0; i < std::min(own.rounds.size(), base.rounds.size()); ++i) {
    const ServeFigures& a = own.rounds[i];
    const ServeFigures& b = base.rounds[i];
    if (a.output_per_second > 0.0 && b.output_per_second > 0.0) {
      throughput.emplace_back(a.output_per_second, b.output_per_second);
    }
    if (a.per_output_token.mean > 0.0 && b.per_output_token.mean > 0.0) {
      pace.emplace_back(b.per_output_token.mean, a.per_output_token.mean);
    }
  }
  out.throughput = paired_ratio(throughput);
  out.pace = paired_ratio(pace);
  for (size_t i = 0; i < std::min(own.samples.size(), base.samples.size()); ++i) {
    if (own.samples[i].state != State::kDone || base.samples[i].state != State::kDone) continue;
    ++out.compared;
    if (own.samples[i].text_hash != base.samples[i].text_hash) ++out.differing;
  }
}

Status ServeBench::run_at(int concurrency) {
  std::vector<Cell> cells(options_.settings.size());
  for (int round = 0; round < options_.rounds; ++round) {
    for (size_t turn = 0; turn < cells.size() && !target_.cancelled(); ++turn) {
      // Another begins each time.
      const size_t s = (turn + static_cast<size_t>(round)) % cells.size();
      AERIE_RETURN_IF_ERROR(run_once(concurrency, round, s, cells[s]));
    }
  }
  for (size_t s = 0; s < cells.size(); ++s) {
    ServeRun run;
    run.concurrency = concurrency;
    run.setting = s;
    run.figures = summarize(cells[s].samples, cells[s].seconds, cells[s].counters);
    if (s > 0) compare(cells[s], cells[0], run);
    report_.runs.push_back(std::move(run));
  }
  return {};
}

Expected<ServeReport> ServeBench::run() {
  report_.url = target_.url;
  report_.date = utc_date();
  report_.chat = target_.chat;
  report_.datasets = options_.datasets;
  if (options_.made != ServeOptions::Made::kNone) {
    report_.datasets.insert(report_.datasets.begin(), prompts_.front().task);
  }
  report_.num_prompts = static_cast<int>(count());
  report_.max_tokens = target_.max_tokens;
  if (prompts_.front().max_tokens > 0) {
    report_.max_tokens = std::ranges::max_element(prompts_, {}, &Prompt::max_tokens)->max_tokens;
  }
  report_.rounds = options_.rounds;
  report_.temperature = target_.temperature;
  report_.rate = options_.rate;
  report_.seed = target_.seed;
  report_.sweep = options_.sweep;
  report_.settings = options_.settings;
  AERIE_RETURN_IF_ERROR(look_at_server());
  AERIE_RETURN_IF_ERROR(probe());
  AERIE_RETURN_IF_ERROR(warm_up());
  for (const int concurrency : options_.concurrency) {
    if (target_.cancelled()) break;
    AERIE_RETURN_IF_ERROR(run_at(concurrency));
  }
  report_.interrupted = target_.cancelled();
  return std::move(report_);
}

Expected<std::vector<Prompt>> prompts_for(const ServeOptions& o, HttpClient& client) {
  if (o.made == ServeOptions::Made::kNone) {
    AERIE_ASSIGN_OR_RETURN(const PromptFiles files, PromptFiles::locate(o.datasets));
    return read_prompts(files.paths(), o.selection);
  }
  AERIE_ASSIGN_OR_RETURN(ServerTokens tokens, ServerTokens::ask(client, o.target));
  if (!tokens.counts() && o.note) {
    o.note(fmt::format("{}/tokenize does not answer: lengths of prompts are estimated",
                       o.target.root()));
  }
  const int count = o.num_prompts > 0 ? o.num_prompts : kMadePrompts;
  if (o.made == ServeOptions::Made::kRandom) {
    return make_random_prompts(o.random, count, o.target.seed, tokens);
  }
  if (o.datasets.size() == 1) {
    return make_sonnet_prompts(o.sonnet, o.datasets.front(), o.target.chat, count, o.target.seed,
                               tokens);
  }
  return invalid_argument(
      "the set sonnet is made of the lines of a poem: give --dataset-path FILE");
}

}  // namespace

Expected<ServeSetting> parse_serve_setting(const std::string& text) {
  ServeSetting out;
  out.name = text;
  const size_t at = text.rfind('@');
  out.method = text.substr(0, at);
  if (out.method.empty()) {
    return invalid_argument(
        "a speculation setting must be NAME or NAME@DEPTH, such as off or ngram@5");
  }
  if (at == std::string::npos) {
    out.value = out.method == "off" ? Json("off") : Json({{"method", out.method}});
    return out;
  }
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data() + at + 1, end, out.depth);
  if (result.ec != std::errc() || result.ptr != end || out.depth < 1 || out.depth > kMostDepth) {
    return invalid_argument("'{}': the depth behind @ must be a number from 1 to {}", text,
                            kMostDepth);
  }
  out.value = {{"method", out.method}, {"depth", out.depth}};
  return out;
}

Expected<std::vector<ServeSetting>> sweep_settings(const std::vector<std::string>& methods,
                                                   const std::vector<int>& depths) {
  std::vector<ServeSetting> settings = {{"off", "off", "off", 0}};
  for (const std::string& method : methods) {
    for (const int depth : depths) {
      AERIE_ASSIGN_OR_RETURN(ServeSetting setting,
                             parse_serve_setting(fmt::format("{}@{}", method, depth)));
      settings.push_back(std::move(setting));
    }
  }
  if (settings.size() == 1) return invalid_argument("a sweep needs methods (--methods) and depths");
  return settings;
}

const ServeRun* best_depth(const ServeReport& report, const std::string& method, int concurrency) {
  const ServeRun* best = nullptr;
  for (const ServeRun& run : report.runs) {
    if (run.concurrency != concurrency || report.settings[run.setting].method != method) continue;
    const double speed = run.figures.output_per_second;
    if (speed > 0.0 && (best == nullptr || speed > best->figures.output_per_second)) best = &run;
  }
  return best;
}

Expected<std::vector<std::string>> offered_methods(const ServeTarget& target) {
  AERIE_ASSIGN_OR_RETURN(HttpClient client, HttpClient::create(target.http()));
  AERIE_ASSIGN_OR_RETURN(const Json model, read_model(client, target));
  std::vector<std::string> methods;
  if (model.is_object() && model.contains("aerie") && model["aerie"].is_object() &&
      model["aerie"].contains("speculations") && model["aerie"]["speculations"].is_array()) {
    for (const Json& name : model["aerie"]["speculations"]) {
      if (name.is_string() && name != "none" && name != "off") methods.push_back(name);
    }
  }
  if (methods.empty()) {
    return not_found("{} does not say which methods it has: name them with --methods", target.url);
  }
  return methods;
}

Expected<ServeReport> bench_serve(const ServeOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  AERIE_ASSIGN_OR_RETURN(HttpClient client, HttpClient::create(options.target.http()));
  AERIE_ASSIGN_OR_RETURN(std::vector<Prompt> prompts, prompts_for(options, client));
  return ServeBench(options, std::move(prompts), std::move(client)).run();
}

}  // namespace aerie::measure

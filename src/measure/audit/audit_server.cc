#include "measure/audit/audit_server.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "base/progress.h"
#include "format/json.h"
#include "format/text.h"
#include "measure/load/http_client.h"

namespace aerie::measure {
namespace {

using State = AuditOutcome::State;

constexpr int kUnansweredInARow = 3;
constexpr size_t kShownOfAnswer = 300;  // bytes of an answer that is none

// OpenAI's way to ban a token.
constexpr float kBan = -100.0f;

void add_sampling(const SamplingParams& s, Json& out) {
  out["temperature"] = s.temperature;
  // At temperature 0 none of these decides.
  if (s.temperature > 0.0) {
    out["seed"] = s.seed;
    out["top_p"] = s.top_p;
    // Beyond OpenAI's, but servers have defaults of their own for them.
    out["top_k"] = s.top_k > 0 ? s.top_k : -1;
    out["min_p"] = s.min_p;
  }
  if (s.frequency_penalty != 0.0) out["frequency_penalty"] = s.frequency_penalty;
  if (s.presence_penalty != 0.0) out["presence_penalty"] = s.presence_penalty;
  if (s.repetition_penalty != 1.0) {
    out["repetition_penalty"] = s.repetition_penalty;  // vLLM's name
    out["repeat_penalty"] = s.repetition_penalty;      // llama.cpp's
  }
  const bool penalises =
      s.frequency_penalty != 0.0 || s.presence_penalty != 0.0 || s.repetition_penalty != 1.0;
  if (penalises) out["repeat_last_n"] = s.penalty_window;
  if (s.logit_bias.empty()) return;
  Json bias = Json::object();
  for (const auto& [id, value] : s.logit_bias) {
    bias[std::to_string(id)] = std::isinf(value) ? kBan : value;
  }
  out["logit_bias"] = std::move(bias);
}

// vLLM's spelling of ids in the place of tokens; none if one is something else.
std::optional<std::vector<int32_t>> ids_of_names(const std::vector<std::string_view>& names) {
  constexpr std::string_view kMark = "token_id:";
  std::vector<int32_t> ids;
  for (const std::string_view name : names) {
    if (!name.starts_with(kMark)) return std::nullopt;
    int32_t id = -1;
    const char* end = name.data() + name.size();
    const auto result = std::from_chars(name.data() + kMark.size(), end, id);
    if (result.ec != std::errc() || result.ptr != end || id < 0) return std::nullopt;
    ids.push_back(id);
  }
  return ids;
}

Status read_ids(const JsonObject& choice, Replay& out) {
  if (choice.has("token_ids")) {
    AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> values, choice.integers("token_ids"));
    out.tokens.emplace();
    for (const int64_t value : values) {
      if (value < 0 || value > std::numeric_limits<int32_t>::max()) {
        return choice.error(StatusCode::kInvalidData, "token_ids", "holds {}, which is no token id",
                            value);
      }
      out.tokens->push_back(static_cast<int32_t>(value));
    }
    return {};
  }
  if (!choice.has("logprobs")) return {};
  AERIE_ASSIGN_OR_RETURN(const JsonObject logprobs, choice.object("logprobs"));
  if (!logprobs.has("tokens")) return {};
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string_view> names, logprobs.strings("tokens"));
  out.tokens = ids_of_names(names);
  return {};
}

std::string not_askable(const Record& record, bool send_text) {
  if (record.sampling.choice != 0) {
    return fmt::format("it is choice {} of several, which a request of one cannot ask for",
                       record.sampling.choice);
  }
  if (record.grammar) return "it has a grammar, which servers are asked for in different ways";
  if (send_text && !record.prompt_text) {
    return "it has no prompt as text, and --send text was given";
  }
  return "";
}

class ServerAudit {
 public:
  ServerAudit(const ServerAuditOptions& options, std::span<const AuditRecord> records,
              HttpClient& client)
      : options_(options), records_(records), client_(client) {}

  Expected<AuditReport> run();

 private:
  // Whether anything answered.
  bool ask(const AuditRecord& one, AuditOutcome& outcome);
  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }

  const ServerAuditOptions& options_;
  std::span<const AuditRecord> records_;
  HttpClient& client_;
};

void fail(AuditOutcome& outcome, std::string reason) {
  outcome.state = State::kFailed;
  outcome.reason = std::move(reason);
}

bool ServerAudit::ask(const AuditRecord& one, AuditOutcome& outcome) {
  const std::string url = options_.url + "/completions";
  const auto response = client_.post(url, completion_request(one.record, options_));
  if (cancelled()) return true;
  if (!response.ok()) {
    fail(outcome, response.status().message());
    return response.status().code() != StatusCode::kNotFound;
  }
  if (response->status != 200) {
    fail(outcome, fmt::format("{}: HTTP status {}: {}", url, response->status,
                              printable(response->body, kShownOfAnswer)));
    return true;
  }
  const Expected<Replay> replay = parse_completion(response->body, url);
  if (!replay.ok()) {
    fail(outcome, replay.status().message());
    return true;
  }
  compare(one.record, *replay, nullptr, outcome);
  if (outcome.divergence && one.record.sampling.temperature > 0.0) {
    outcome.divergence->notes.push_back(
        "above temperature 0 only a server with the same noise can agree");
  }
  return true;
}

Expected<AuditReport> ServerAudit::run() {
  AuditReport report;
  report.target = options_.url;
  report.how = options_.send_text ? "prompts as text" : "prompts as ids";
  int done = 0;
  Progress progress("asking again", static_cast<int64_t>(records_.size()));
  int unanswered = 0;
  bool answered = false;
  for (const AuditRecord& one : records_) {
    AuditOutcome& outcome = report.outcomes.emplace_back();
    outcome.where = one.where;
    if (cancelled()) continue;
    std::string reason = not_comparable(one.record);
    if (reason.empty()) reason = not_askable(one.record, options_.send_text);
    if (!reason.empty()) {
      outcome.state = State::kSkipped;
      outcome.reason = std::move(reason);
    } else if (ask(one, outcome)) {
      answered = true;
    } else if (!answered && ++unanswered == kUnansweredInARow) {
      break;
    }
    if (cancelled()) continue;
    progress.set(++done);
    if (options_.progress) options_.progress(done, static_cast<int>(records_.size()));
  }
  report.interrupted = cancelled();
  if (!answered && unanswered > 0 && !report.interrupted) {
    const AuditOutcome& last = *report.first(State::kFailed);
    return not_found("nothing answers: {}: {}", last.where, last.reason);
  }
  return report;
}

}  // namespace

std::string completion_request(const Record& record, const ServerAuditOptions& options) {
  Json out;
  if (!options.model.empty()) out["model"] = options.model;
  if (options.send_text) {
    out["prompt"] = *record.prompt_text;
  } else {
    out["prompt"] = record.prompt;
  }
  out["max_tokens"] = replay_tokens(record);
  add_sampling(record.sampling, out);
  if (!record.stop.empty()) out["stop"] = record.stop;
  if (record.ignore_eos) out["ignore_eos"] = true;
  out["stream"] = false;
  if (!options.send_text) out["return_token_ids"] = true;  // vLLM's name
  return out.dump();
}

Expected<Replay> parse_completion(const std::string& body, const std::string& where) {
  AERIE_ASSIGN_OR_RETURN(const Json json, parse_json(body, where));
  AERIE_ASSIGN_OR_RETURN(const JsonObject answer, JsonObject::view(json, where));
  const Json* choices = answer.find("choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) {
    return answer.error(StatusCode::kInvalidData, "choices", "is no list of replies in {}",
                        printable(body, kShownOfAnswer));
  }
  AERIE_ASSIGN_OR_RETURN(const JsonObject choice, JsonObject::view(choices->front(), where));
  Replay out;
  AERIE_ASSIGN_OR_RETURN(const std::string_view text, choice.string("text"));
  out.text = text;
  AERIE_ASSIGN_OR_RETURN(const std::string_view reason, choice.string("finish_reason", ""));
  for (const FinishReason known :
       {FinishReason::kStop, FinishReason::kLength, FinishReason::kError}) {
    if (reason == finish_reason_name(known)) out.finish = known;
  }
  AERIE_RETURN_IF_ERROR(read_ids(choice, out));
  return out;
}

Expected<AuditReport> audit_server(const ServerAuditOptions& options,
                                   std::span<const AuditRecord> records) {
  HttpOptions http;
  http.timeout = options.timeout;
  http.bearer = options.api_key;
  http.cancel = options.cancel;
  ServerAuditOptions own = options;
  while (own.url.ends_with('/')) own.url.pop_back();
  AERIE_ASSIGN_OR_RETURN(HttpClient client, HttpClient::create(http));
  return ServerAudit(own, records, client).run();
}

}  // namespace aerie::measure

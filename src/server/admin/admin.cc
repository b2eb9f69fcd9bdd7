#include "server/admin/admin.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/errors.h"
#include "server/openai/fields/field_reader.h"
#include "server/openai/fields/json_text.h"

namespace aerie::server {
namespace {

constexpr double kUsualShadow = 0.05;           // of the requests
constexpr size_t kMostBytes = size_t{1} << 20;  // of what an order takes as values

Json json_of(const Speedup& speedup) {
  if (!speedup.known()) return nullptr;
  return {{"ratio", speedup.ratio}, {"low", speedup.low}, {"high", speedup.high}};
}

Json json_of(const SettingFigures& figures) {
  return {{"replies", figures.replies()},
          {"token_ms", 1e3 * figures.times.mean()},
          {"token_ms_p99", 1e3 * figures.times.quantile(0.99)},
          {"tokens", figures.tokens},
          {"drafted", figures.drafted},
          {"accepted", figures.accepted}};
}

Json canary_of(const Rollout::State& state) {
  if (state.candidate.empty()) return nullptr;
  return {{"speculate", state.candidate},
          {"share", state.share},
          {"step", state.step + 1},
          {"steps", state.rule.steps},
          {"speedup", json_of(state.speedup)},
          {"candidate", json_of(state.candidate_figures)},
          {"present", json_of(state.present_figures)}};
}

Json shadow_of(const Rollout::ShadowFigures& shadow) {
  if (shadow.name.empty()) return nullptr;
  const ShadowStats& paper = shadow.on_paper;
  const auto rounds = static_cast<double>(std::max<int64_t>(1, paper.rounds));
  const auto real = static_cast<double>(std::max<int64_t>(1, shadow.rounds));
  // One token of a round is the target's own.
  return {{"speculate", shadow.name},
          {"share", shadow.share},
          {"replies", shadow.replies},
          {"rounds", paper.rounds},
          {"drafted", paper.drafted},
          {"accepted", paper.accepted},
          {"accepted_at", paper.accepted_at},
          {"accepted_length", 1.0 + static_cast<double>(paper.accepted) / rounds},
          {"draft_ms", 1e3 * paper.seconds / rounds},
          {"present_accepted_length", static_cast<double>(shadow.round_tokens) / real}};
}

Json holdback_of(const Holdback& holdback) {
  Json list = Json::array();
  for (const Holdback::Figures& one : holdback.figures()) {
    list.push_back({{"speculate", one.group.method},
                    {"traffic_class", one.group.traffic_class},
                    {"speculated", one.speculated},
                    {"held_back", one.held_back},
                    {"drafted", one.drafted},
                    {"accepted", one.accepted},
                    {"speedup", json_of(one.speedup)},
                    {"gated", one.is_gated}});
  }
  return list;
}

Json status_of(ModelHost& host, size_t model) {
  Json out = {{"model", host.names(model).front()},
              {"status", presence_name(host.presence(model))},
              {"failure", nullptr}};
  if (const std::string failure = host.failure(model); !failure.empty()) out["failure"] = failure;
  const ModelHost::Lease lease = host.loaded(model, false);
  if (lease == nullptr) return out;
  const Rollout::State state = lease->rollout.state();
  const ServiceStats stats = lease->service.stats();
  Json offered = Json::array();
  for (const std::string& one : lease->service.speculations()) {
    if (!one.empty()) offered.push_back(one);
  }
  out["memory_mib"] = lease->service.memory_bytes() >> 20;
  out["running"] = stats.running;
  out["waiting"] = stats.waiting;
  out["speculations"] = std::move(offered);
  out["present"] = state.present;
  out["canary"] = canary_of(state);
  out["shadow"] = shadow_of(state.shadow);
  out["last"] = state.last.empty() ? Json() : Json(state.last);
  out["holdback"] = holdback_of(lease->holdback);
  return out;
}

void send_status(ModelHost& host, size_t model, Answer& answer) {
  answer.send(200, "application/json", json_text(status_of(host, model)));
}

// What says whether a new setting stays.
RolloutRule read_rule(FieldReader& request) {
  RolloutRule rule;
  if (const Json* steps = request.array("steps")) {
    rule.steps.clear();
    for (const Json& step : *steps) {
      if (!step.is_number()) request.refuse("steps", "must be shares between 0 and 1");
      if (request.failed()) return rule;
      rule.steps.push_back(step.get<double>());
    }
  }
  constexpr int kMost = 1 << 30;
  rule.least_replies = request.integer("least_replies", rule.least_replies, 5, kMost);
  rule.most_replies = request.integer("most_replies", rule.most_replies, 10, kMost);
  rule.least_gain = request.number("least_gain", rule.least_gain, 0.01, 100.0);
  rule.most_tail = request.number("most_tail", rule.most_tail, 1.0, 100.0);
  rule.least_accepted = request.number("least_accepted", rule.least_accepted, 0.0, 0.99);
  return rule;
}

Status begin(RouteName name, ApiState& model, FieldReader& request) {
  const bool on_paper = name == RouteName::kAdminShadow;
  const RolloutRule rule = on_paper ? RolloutRule() : read_rule(request);
  const double share = request.number("share", kUsualShadow, 0.0, 1.0);
  const std::string speculate = request.string("speculate", "");
  if (speculate.empty()) request.refuse("speculate", "is missing: give a setting, as --speculate");
  if (request.failed()) return {};
  Status begun = on_paper ? model.rollout.begin_shadow(speculate, share)
                          : model.rollout.begin(speculate, rule);
  // Of its files, not of the model.
  if (begun.code() != StatusCode::kNotFound) return begun;
  return invalid_argument("{}", begun.message());
}

// Of a model that is there.
Status change(RouteName name, ModelHost& host, size_t model, FieldReader& request) {
  if (name == RouteName::kAdminUnload) return host.unload(model);
  const ModelHost::Lease lease = host.loaded(model);
  if (lease == nullptr) return not_found("{} is not loaded", host.names(model).front());
  switch (name) {
    case RouteName::kAdminCanary:
    case RouteName::kAdminShadow:
      return begin(name, *lease, request);
    case RouteName::kAdminShadowEnd:
      return lease->rollout.end_shadow();
    case RouteName::kAdminPromote:
      return lease->rollout.promote();
    default:
      return lease->rollout.roll_back();
  }
}

ApiError error_of_order(const Status& status) {
  const bool is_conflict =
      status.code() == StatusCode::kNotFound || status.code() == StatusCode::kUnsupported;
  return is_conflict ? error_of(409, status.message()) : error_of(status);
}

}  // namespace

Json admin_status(ModelHost& host) {
  Json models = Json::array();
  for (size_t i = 0; i < host.count(); ++i) models.push_back(status_of(host, i));
  return {{"models", std::move(models)}};
}

void answer_order(RouteName name, ModelHost& host, const HttpRequest& request,
                  const std::shared_ptr<Answer>& answer) {
  auto body =
      parse_json(request.body.empty() ? "{}" : request.body, "the request's body", kMostBytes);
  if (!body.ok()) return send_error(*answer, error_of(400, body.status().message()));
  std::optional<ApiError> error;
  FieldReader reader(*body, error);
  const std::string named = reader.string("model", host.names(0).front());
  const std::optional<size_t> model = host.find(named);
  if (!error && !model) reader.refuse(error_of(404, "there is no such model", "model"));
  if (error) return send_error(*answer, *error);
  if (name == RouteName::kAdminLoad) {
    return host.use(*model, nullptr,
                    [&host, model, answer](const Expected<ModelHost::Lease>& lease) {
                      if (!lease.ok())
                        return send_error(*answer, error_of(503, lease.status().message()));
                      send_status(host, *model, *answer);
                    });
  }
  const Status done = change(name, host, *model, reader);
  if (error) return send_error(*answer, *error);
  if (!done.ok()) return send_error(*answer, error_of_order(done));
  send_status(host, *model, *answer);
}

}  // namespace aerie::server

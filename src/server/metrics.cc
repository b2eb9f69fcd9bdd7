#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

namespace aerie::server {
namespace {

namespace prom = prometheus;
using Buckets = prom::Histogram::BucketBoundaries;

// vLLM's.
const Buckets kFirstToken = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                             1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const Buckets kBetweenTokens = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                                0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
const Buckets kRequest = {0.01, 0.05, 0.1, 0.3, 0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,
                          10.0, 15.0, 20,  30,  40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0};
const Buckets kTokens = {1,   2,    5,    10,   20,    50,    100,   200,
                         500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

std::string reason_of(const ReplyEnd& end) {
  switch (end.outcome) {
    case ReplyOutcome::kDone:
      return std::string(finish_reason_name(end.finish));
    case ReplyOutcome::kCancelled:
    case ReplyOutcome::kDeadline:
      return "abort";
    case ReplyOutcome::kFailed:
      break;
  }
  return "error";
}

}  // namespace

struct Metrics::State {
  explicit State(std::string model)
      : labels{{"model_name", std::move(model)}, {"engine", "0"}},
        first_token(
            histogram("vllm:time_to_first_token_seconds", "Time to the first token", kFirstToken)),
        between(
            histogram("vllm:inter_token_latency_seconds", "Time between tokens", kBetweenTokens)),
        per_token(histogram("vllm:time_per_output_token_seconds",
                            "Time between tokens, under its older name", kBetweenTokens)),
        request_per_token(histogram("vllm:request_time_per_output_token_seconds",
                                    "A request's mean time per token after the first",
                                    kBetweenTokens)),
        whole(histogram("vllm:e2e_request_latency_seconds", "Time of a request", kRequest)),
        queue(histogram("vllm:request_queue_time_seconds", "Time waiting", kRequest)),
        prompt(histogram("vllm:request_prefill_time_seconds", "Time reading the prompt", kRequest)),
        decode(
            histogram("vllm:request_decode_time_seconds", "Time after the first token", kRequest)),
        inference(histogram("vllm:request_inference_time_seconds", "Time running", kRequest)),
        prompt_tokens(histogram("vllm:request_prompt_tokens", "Tokens of a prompt", kTokens)),
        reply_tokens(histogram("vllm:request_generation_tokens", "Tokens of a reply", kTokens)),
        success(prom::BuildCounter()
                    .Name("vllm:request_success_total")
                    .Help("Requests that ended, by how")
                    .Labels(labels)
                    .Register(registry)) {
    for (const char* reason : {"stop", "length", "abort", "error"}) {
      success.Add({{"finished_reason", reason}});
    }
  }

  prom::Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prom::BuildHistogram().Name(name).Help(help).Labels(labels).Register(registry).Add(
        {}, buckets);
  }

  prom::Labels labels;
  prom::Registry registry;
  prom::Histogram& first_token;
  prom::Histogram& between;
  prom::Histogram& per_token;
  prom::Histogram& request_per_token;
  prom::Histogram& whole;
  prom::Histogram& queue;
  prom::Histogram& prompt;
  prom::Histogram& decode;
  prom::Histogram& inference;
  prom::Histogram& prompt_tokens;
  prom::Histogram& reply_tokens;
  prom::Family<prom::Counter>& success;
};

namespace {

// What the service counts itself, in the library's form.
class ServiceFamilies {
 public:
  explicit ServiceFamilies(const prom::Labels& labels) {
    for (const auto& [name, value] : labels) labels_.push_back({name, value});
  }

  void gauge(const char* name, const char* help, double value) {
    prom::ClientMetric metric;
    metric.label = labels_;
    metric.gauge.value = value;
    families.push_back({name, help, prom::MetricType::Gauge, {metric}});
  }
  template <typename Number>
  void counter(const char* name, const char* help, Number value) {
    families.push_back({name, help, prom::MetricType::Counter, {}});
    add(static_cast<double>(value), {});
  }
  // One of several of the last family.
  void add(double value, std::vector<prom::ClientMetric::Label> more) {
    prom::ClientMetric metric;
    metric.label = labels_;
    metric.label.insert(metric.label.end(), more.begin(), more.end());
    metric.counter.value = value;
    families.back().metric.push_back(std::move(metric));
  }

  void begin(const char* name, const char* help, prom::MetricType type) {
    families.push_back({name, help, type, {}});
  }
  // As add(), of a gauge.
  void add_gauge(double value, std::vector<prom::ClientMetric::Label> more) {
    add(0.0, std::move(more));
    families.back().metric.back().counter.value = 0.0;
    families.back().metric.back().gauge.value = value;
  }

  std::vector<prom::MetricFamily> families;

 private:
  std::vector<prom::ClientMetric::Label> labels_;
};

using Labels = std::vector<prom::ClientMetric::Label>;

Labels labels_of(const Holdback::Figures& one) {
  return {{"method", one.group.method}, {"traffic_class", one.group.traffic_class}};
}

void add_gains(const std::vector<Holdback::Figures>& gains, ServiceFamilies& out) {
  const auto gauge = [&](const char* name, const char* help, double Speedup::*value) {
    out.begin(name, help, prom::MetricType::Gauge);
    for (const Holdback::Figures& one : gains) {
      if (one.speedup.known()) out.add_gauge(one.speedup.*value, labels_of(one));
    }
  };
  gauge("aerie:speculation_speedup", "Time for a token plainly over that with speculation",
        &Speedup::ratio);
  gauge("aerie:speculation_speedup_low", "Lower end of its interval of 95 %", &Speedup::low);
  gauge("aerie:speculation_speedup_high", "Upper end of it", &Speedup::high);
  out.begin("aerie:speculation_gated", "Answered plainly, since speculation is measured to lose",
            prom::MetricType::Gauge);
  for (const Holdback::Figures& one : gains) out.add_gauge(one.is_gated ? 1 : 0, labels_of(one));
  const auto counter = [&](const char* name, const char* help, const auto& add) {
    out.begin(name, help, prom::MetricType::Counter);
    for (const Holdback::Figures& one : gains) add(one);
  };
  counter("aerie:speculation_replies_total", "Replies whose times are compared, by group",
          [&](const Holdback::Figures& one) {
            for (const bool held_back : {false, true}) {
              Labels labels = labels_of(one);
              labels.push_back({"group", held_back ? "held_back" : "speculated"});
              out.add(static_cast<double>(held_back ? one.held_back : one.speculated), labels);
            }
          });
  counter("aerie:speculation_drafted_tokens_total", "Drafted tokens by method and class",
          [&](const Holdback::Figures& one) {
            out.add(static_cast<double>(one.drafted), labels_of(one));
          });
  counter("aerie:speculation_accepted_tokens_total", "Accepted tokens by method and class",
          [&](const Holdback::Figures& one) {
            out.add(static_cast<double>(one.accepted), labels_of(one));
          });
}

void add_rollout(const Rollout::State& rollout, ServiceFamilies& out) {
  out.counter("aerie:canary_promotions_total", "Settings of speculation that were promoted",
              rollout.promotions);
  out.counter("aerie:canary_rollbacks_total", "Settings of speculation that were rolled back",
              rollout.roll_backs);
  out.begin("aerie:canary_share", "Of the requests, that get the setting on trial",
            prom::MetricType::Gauge);
  if (rollout.candidate.empty()) return;
  const Labels method = {{"method", rollout.candidate}};
  out.add_gauge(rollout.share, method);
  const auto gauge = [&](const char* name, const char* help, double value) {
    if (!rollout.speedup.known()) return;
    out.begin(name, help, prom::MetricType::Gauge);
    out.add_gauge(value, method);
  };
  gauge("aerie:canary_speedup", "Time for a token with the present setting over that on trial",
        rollout.speedup.ratio);
  gauge("aerie:canary_speedup_low", "Lower end of its interval", rollout.speedup.low);
  gauge("aerie:canary_speedup_high", "Upper end of it", rollout.speedup.high);
}

}  // namespace

Metrics::Metrics(std::string model_name) : state_(std::make_unique<State>(std::move(model_name))) {}
Metrics::~Metrics() = default;

void Metrics::on_first_token(double seconds) {
  state_->first_token.Observe(seconds);
}

void Metrics::on_tokens(int count, double seconds) {
  for (int i = 0; i < count; ++i) {
    state_->between.Observe(seconds / count);
    state_->per_token.Observe(seconds / count);
  }
}

void Metrics::on_end(const ReplyEnd& end, double seconds) {
  State& s = *state_;
  s.success.Add({{"finished_reason", reason_of(end)}}).Increment();
  s.whole.Observe(seconds);
  s.queue.Observe(end.queue_seconds);
  s.prompt_tokens.Observe(end.prompt_tokens);
  s.reply_tokens.Observe(end.generated_tokens);
  if (end.generated_tokens == 0) return;
  s.prompt.Observe(end.prompt_seconds);
  s.decode.Observe(end.generation_seconds);
  s.inference.Observe(end.prompt_seconds + end.generation_seconds);
  if (end.generated_tokens > 1) {
    s.request_per_token.Observe(end.generation_seconds / (end.generated_tokens - 1));
  }
}

namespace {

void add_stats(const ServiceStats& stats, ServiceFamilies& out) {
  out.gauge("vllm:num_requests_running", "Requests that are decoded", stats.running);
  out.gauge("vllm:num_requests_waiting", "Requests that wait", stats.waiting);
  out.gauge("vllm:kv_cache_usage_perc", "Used part of the cache; 1 is all", stats.cache_usage);
  out.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the cache",
              stats.prefix_queries);
  out.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the cache",
              stats.prefix_hits);
  out.counter("vllm:prompt_tokens_total", "Prompt tokens", stats.prompt_tokens);
  out.counter("vllm:generation_tokens_total", "Generated tokens", stats.generated_tokens);
  out.counter("vllm:num_preemptions_total", "Requests set back to waiting", stats.preemptions);
  out.counter("vllm:spec_decode_num_drafts_total", "Rounds that drafted", stats.drafts);
  out.counter("vllm:spec_decode_num_draft_tokens_total", "Drafted tokens", stats.draft_tokens);
  out.counter("vllm:spec_decode_num_accepted_tokens_total", "Accepted tokens",
              stats.accepted_tokens);
  out.families.push_back({"vllm:spec_decode_num_accepted_tokens_per_pos_total",
                          "Accepted tokens by depth",
                          prom::MetricType::Counter,
                          {}});
  for (size_t i = 0; i < stats.accepted_at.size(); ++i) {
    out.add(static_cast<double>(stats.accepted_at[i]), {{"position", std::to_string(i)}});
  }
  out.counter("aerie:target_passes_total", "Passes of the target", stats.passes);
  out.counter("aerie:target_pass_seconds_total", "Time in passes of the target",
              stats.pass_seconds);
  out.counter("aerie:busy_seconds_total", "Time with at least one request", stats.busy_seconds);
  out.counter("aerie:records_written_total", "Replies that were recorded", stats.records_written);
  out.counter("aerie:records_dropped_total", "Replies whose records could not be written in time",
              stats.records_dropped);
  out.counter("aerie:records_left_out_total", "Replies not recorded since they have grammars",
              stats.records_left_out);
  out.counter("aerie:learned_total", "Replies that were kept for training", stats.learned);
  out.counter("aerie:learned_dropped_total", "Replies that could not be kept for training in time",
              stats.learned_dropped);
}

// A family stands once on the page, with what all models have of it.
void merge(std::vector<prom::MetricFamily> families, std::vector<prom::MetricFamily>& all) {
  for (prom::MetricFamily& family : families) {
    const auto known = std::ranges::find(all, family.name, &prom::MetricFamily::name);
    if (known == all.end()) {
      all.push_back(std::move(family));
    } else {
      std::ranges::move(family.metric, std::back_inserter(known->metric));
    }
  }
}

}  // namespace

std::string Metrics::text(const std::vector<Figures>& models) {
  std::vector<prom::MetricFamily> all;
  for (const Figures& model : models) {
    const State& state = *model.metrics->state_;
    ServiceFamilies out(state.labels);
    out.gauge("aerie:model_loaded", "Whether the model is in memory", model.is_loaded ? 1 : 0);
    add_stats(model.stats, out);
    add_gains(model.gains, out);
    add_rollout(model.rollout, out);
    merge(state.registry.Collect(), all);
    merge(std::move(out.families), all);
  }
  std::ostringstream text;
  prom::TextSerializer().Serialize(text, all);
  return std::move(text).str();
}

}  // namespace aerie::server

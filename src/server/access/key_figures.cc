#include "server/access/key_figures.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <sstream>
#include <vector>

#include "server/openai/fields/json_text.h"

namespace aerie::server {
namespace {

namespace prom = prometheus;

prom::ClientMetric metric_of(const std::string& name, int64_t value, prom::MetricType type) {
  prom::ClientMetric out;
  out.label = {{"key", valid_text(name)}};
  (type == prom::MetricType::Gauge ? out.gauge.value : out.counter.value) =
      static_cast<double>(value);
  return out;
}

}  // namespace

KeyFigures::Figures& KeyFigures::of(const std::string& name) {
  const auto known = figures_.find(name);
  if (known != figures_.end()) return known->second;
  return figures_[figures_.size() < kMostNames ? name : "other"];
}

void KeyFigures::on_begin(const std::string& name) {
  const std::lock_guard lock(mutex_);
  Figures& one = of(name);
  ++one.requests;
  ++one.running;
}

void KeyFigures::on_end(const std::string& name, int64_t prompt_tokens, int64_t generated_tokens) {
  const std::lock_guard lock(mutex_);
  Figures& one = of(name);
  --one.running;
  one.prompt_tokens += prompt_tokens;
  one.generated_tokens += generated_tokens;
}

void KeyFigures::on_refused(const std::string& name, std::string_view limit) {
  const std::lock_guard lock(mutex_);
  ++of(name).refused[std::string(limit)];
}

std::string KeyFigures::text() const {
  const std::lock_guard lock(mutex_);
  if (figures_.empty()) return "";
  std::vector<prom::MetricFamily> families;
  const auto add = [&](const char* title, const char* help, int64_t Figures::*value,
                       prom::MetricType type = prom::MetricType::Counter) {
    families.push_back({title, help, type, {}});
    for (const auto& [name, one] : figures_) {
      families.back().metric.push_back(metric_of(name, one.*value, type));
    }
  };
  add("aerie:key_requests_total", "Requests that were let through, by key", &Figures::requests);
  add("aerie:key_requests_running", "Requests that are answered, by key", &Figures::running,
      prom::MetricType::Gauge);
  add("aerie:key_prompt_tokens_total", "Prompt tokens by key", &Figures::prompt_tokens);
  add("aerie:key_generation_tokens_total", "Generated tokens by key", &Figures::generated_tokens);
  families.push_back({"aerie:key_refused_total",
                      "Requests beyond a limit, by key and limit",
                      prom::MetricType::Counter,
                      {}});
  for (const auto& [name, one] : figures_) {
    for (const auto& [limit, count] : one.refused) {
      families.back().metric.push_back(metric_of(name, count, prom::MetricType::Counter));
      families.back().metric.back().label.push_back({"limit", limit});
    }
  }
  std::ostringstream text;
  prom::TextSerializer().Serialize(text, families);
  return std::move(text).str();
}

}  // namespace aerie::server

// Figures for Prometheus, under vLLM's names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/service.h"
#include "server/holdback.h"

namespace aerie::server {

// Thread-safe.
class Metrics {
 public:
  explicit Metrics(std::string model_name);
  ~Metrics();

  void on_first_token(double seconds);               // since the request came
  void on_tokens(int count, double seconds);         // since the last ones
  void on_end(const ReplyEnd& end, double seconds);  // since the request came
  // The page of /metrics.
  std::string text(const ServiceStats& stats, const std::vector<Holdback::Figures>& gains) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace aerie::server

// Figures for Prometheus, under vLLM's names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/service.h"
#include "server/rollout/holdback.h"
#include "server/rollout/rollout.h"

namespace aerie::server {

// Thread-safe.
class Metrics {
 public:
  explicit Metrics(std::string model_name);
  ~Metrics();

  void on_first_token(double seconds);               // since the request came
  void on_tokens(int count, double seconds);         // since the last ones
  void on_end(const ReplyEnd& end, double seconds);  // since the request came
  // Of one model, for the page.
  struct Figures {
    const Metrics* metrics = nullptr;
    ServiceStats stats;
    std::vector<Holdback::Figures> gains;
    Rollout::State rollout;
    bool is_loaded = true;
  };
  // The page of /metrics.
  static std::string text(const std::vector<Figures>& models);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace aerie::server

#include "measure/spec/speculation_model.h"

#include <cmath>

namespace aerie::measure {

double expected_tokens(double alpha, int drafted) {
  if (alpha >= 1.0) return drafted + 1.0;
  return (1.0 - std::pow(alpha, drafted + 1)) / (1.0 - alpha);
}

double expected_tokens(std::span<const double> alpha_by_depth) {
  double tokens = 1.0, reached = 1.0;
  for (const double alpha : alpha_by_depth) {
    reached *= alpha;
    tokens += reached;
  }
  return tokens;
}

double expected_tokens(double alpha, std::span<const double> drafted_share) {
  double tokens = 1.0, reached = 1.0;
  for (const double share : drafted_share) {
    reached *= alpha;
    tokens += share * reached;
  }
  return tokens;
}

double speedup(double alpha, int drafted, double cost) {
  return speedup_of_round(expected_tokens(alpha, drafted), drafted, cost, 1.0);
}

int best_drafted(double alpha, double cost, int most) {
  int best = 0;
  for (int drafted = 1; drafted <= most; ++drafted) {
    if (speedup(alpha, drafted, cost) > speedup(alpha, best, cost)) best = drafted;
  }
  return best;
}

double speedup_of_round(double tokens, int drafted, double cost, double pass_ratio) {
  return tokens / (drafted * cost + pass_ratio);
}

}  // namespace aerie::measure

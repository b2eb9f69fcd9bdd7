// Of a few measurements of the same thing.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace aerie::bench {

// The value below which a part `q` of them lies, between neighbours in proportion; 0 of none.
inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (at - std::floor(at));
}

inline double median(const std::vector<double>& values) {
  return quantile(values, 0.5);
}

struct Spread {
  double lowest = 0, first_quartile = 0, third_quartile = 0, highest = 0;
};
inline Spread spread(const std::vector<double>& values) {
  return {quantile(values, 0.0), quantile(values, 0.25), quantile(values, 0.75),
          quantile(values, 1.0)};
}

}  // namespace aerie::bench

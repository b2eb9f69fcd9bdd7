// Of a few measurements of the same thing.
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace aerie::measure {

// The value below which a part `q` of them lies, between neighbours in proportion; 0 of none.
inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0.0;
  std::ranges::sort(values);
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

// 0 of none.
inline double mean(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
}

// Student's t beyond which 2.5 % lie on either side.
inline double t_quantile_975(size_t degrees) {
  constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                               2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                               2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
  if (degrees == 0) return 0.0;
  if (degrees <= std::size(kTable)) return kTable[degrees - 1];
  // The first terms of Cornish and Fisher's expansion.
  return 1.95996 + 2.3722 / static_cast<double>(degrees) +
         2.8225 / (static_cast<double>(degrees) * static_cast<double>(degrees));
}

struct PairedRatio {
  double value = 0;                                   // the geometric mean; 0 of none
  std::optional<std::pair<double, double>> interval;  // of 95 %; none of fewer than two pairs
};

// Of values that were measured side by side: pairs of (this one, what it is compared with), all
// above 0. Student's interval of the logarithms, so that few pairs give a wide one.
inline PairedRatio paired_ratio(const std::vector<std::pair<double, double>>& pairs) {
  PairedRatio out;
  if (pairs.empty()) return out;
  std::vector<double> logs;
  for (const auto& [own, other] : pairs) logs.push_back(std::log(own / other));
  const double middle = mean(logs);
  out.value = std::exp(middle);
  if (logs.size() < 2) return out;
  double squares = 0.0;
  for (const double value : logs) squares += (value - middle) * (value - middle);
  const auto n = static_cast<double>(logs.size());
  const double half = t_quantile_975(logs.size() - 1) * std::sqrt(squares / (n - 1.0) / n);
  out.interval = std::pair(std::exp(middle - half), std::exp(middle + half));
  return out;
}

}  // namespace aerie::measure

#include "tests/verify/chi_square.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace aerie::stats {
namespace {

// P(a, x) by its power series; converges fast for x < a + 1.
double lower_gamma_series(double a, double x) {
  double term = 1.0 / a;
  double sum = term;
  for (int n = 1; n < 100000 && term > sum * 1e-17; ++n) {
    term *= x / (a + n);
    sum += term;
  }
  return sum * std::exp(a * std::log(x) - x - std::lgamma(a));
}

// Q(a, x) by Legendre's continued fraction, evaluated by Lentz's method; for x >= a + 1.
double upper_gamma_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1.0 - a;
  double c = 1.0 / kTiny;
  double d = 1.0 / b;
  double fraction = d;
  for (int n = 1; n < 100000; ++n) {
    const double numerator = -n * (n - a);
    b += 2.0;
    d = numerator * d + b;
    if (std::abs(d) < kTiny) d = kTiny;
    c = b + numerator / c;
    if (std::abs(c) < kTiny) c = kTiny;
    d = 1.0 / d;
    fraction *= d * c;
    if (std::abs(d * c - 1.0) < 1e-16) break;
  }
  return fraction * std::exp(a * std::log(x) - x - std::lgamma(a));
}

// The smallest x >= 0 where `reached`, false before and true from then on, holds; to 13 digits.
template <typename Fn>
double solve(const Fn& reached) {
  double high = 1.0;
  while (!reached(high)) high *= 2;
  double low = 0;
  while (high - low > 1e-13 * high) {
    const double middle = 0.5 * (low + high);
    (reached(middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

double chi_square_tail(double x, double degrees) {
  assert(degrees > 0);
  if (x <= 0) return 1.0;
  const double a = degrees / 2;
  const double half = x / 2;
  return half < a + 1 ? 1.0 - lower_gamma_series(a, half) : upper_gamma_fraction(a, half);
}

double chi_square_critical(double degrees, double alpha) {
  return solve([&](double x) { return chi_square_tail(x, degrees) <= alpha; });
}

double noncentral_chi_square_tail(double x, double degrees, double lambda) {
  const double mean = lambda / 2;
  if (mean <= 0) return chi_square_tail(x, degrees);
  double tail = 0;
  // Poisson weights farther than that from their mean are below 1e-16.
  const double spread = 10 * std::sqrt(mean) + 40;
  const int last = static_cast<int>(mean + spread);
  for (int j = static_cast<int>(std::max(0.0, mean - spread)); j <= last; ++j) {
    const double weight = std::exp(j * std::log(mean) - mean - std::lgamma(j + 1.0));
    tail += weight * chi_square_tail(x, degrees + 2.0 * j);
  }
  return tail;
}

double noncentrality_for_power(double degrees, double alpha, double power) {
  const double critical = chi_square_critical(degrees, alpha);
  return solve([&](double lambda) {
    return noncentral_chi_square_tail(critical, degrees, lambda) >= power;
  });
}

ChiSquareTest::ChiSquareTest(std::vector<double> probabilities, ChiSquareSettings settings)
    : probabilities_(std::move(probabilities)),
      settings_(settings),
      observed_(probabilities_.size()) {
  double n = 100;
  for (;;) {
    const Pooling pool = pooling(n);
    degrees_ = pool.cells - 1;
    const double visible = settings_.total_variation - pool.mass;
    if (degrees_ < 1 || visible <= settings_.total_variation / 2) {
      if (pool.mass == 0) break;  // one certain cell: nothing to test
      n *= 2;
      continue;
    }
    const double lambda = noncentrality_for_power(degrees_, settings_.alpha, settings_.power);
    const double needed = std::ceil(lambda / (4 * visible * visible));
    if (n >= needed) break;
    n = needed;
  }
  samples_ = static_cast<int64_t>(n);
}

ChiSquareTest::Pooling ChiSquareTest::pooling(double n) const {
  Pooling pool;
  for (size_t i = 0; i < probabilities_.size(); ++i) {
    if (probabilities_[i] <= 0) continue;
    if (pooled(i, n)) {
      pool.mass += probabilities_[i];
    } else {
      ++pool.cells;
    }
  }
  if (pool.mass > 0) ++pool.cells;
  return pool;
}

ChiSquareResult ChiSquareTest::result() const {
  double n = 0;
  for (const int64_t count : observed_) n += static_cast<double>(count);
  ChiSquareResult result;
  double pool_expected = 0;
  double pool_observed = 0;
  for (size_t i = 0; i < probabilities_.size(); ++i) {
    const double observed = static_cast<double>(observed_[i]);
    const double expected = probabilities_[i] * n;
    if (expected <= 0) {
      if (observed > 0) return {HUGE_VAL, 0.0, true};
    } else if (pooled(i, static_cast<double>(samples_))) {
      pool_expected += expected;
      pool_observed += observed;
    } else {
      result.statistic += (observed - expected) * (observed - expected) / expected;
    }
  }
  if (pool_expected > 0) {
    const double difference = pool_observed - pool_expected;
    result.statistic += difference * difference / pool_expected;
  }
  result.p_value = degrees_ < 1 ? 1.0 : chi_square_tail(result.statistic, degrees_);
  result.rejected = result.p_value < settings_.alpha;
  return result;
}

}  // namespace aerie::stats

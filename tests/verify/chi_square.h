// Goodness of fit with a promise: Pearson's chi-square test of samples against known probabilities,
// with as many samples as it takes to notice a bias of a stated size with a stated certainty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace aerie::stats {

// P(X > x) for X chi-square distributed with `degrees` > 0: the regularised upper incomplete gamma
// function Q(degrees / 2, x / 2).
double chi_square_tail(double x, double degrees);
// The x with chi_square_tail(x, degrees) == alpha, 0 < alpha < 1.
double chi_square_critical(double degrees, double alpha);
// P(X > x) for X noncentral chi-square: a Poisson(lambda / 2) mixture of degrees + 2 j.
double noncentral_chi_square_tail(double x, double degrees, double lambda);
// The smallest lambda with noncentral_chi_square_tail(critical value at alpha, degrees, lambda) >=
// power.
double noncentrality_for_power(double degrees, double alpha, double power);

struct ChiSquareSettings {
  double alpha = 1e-6;            // the chance of rejecting what is right
  double power = 0.999;           // the chance of rejecting what is wrong by at least
  double total_variation = 0.02;  // this much: half the sum of |wrong - right|
};

struct ChiSquareResult {
  double statistic = 0;
  double p_value = 1;
  bool rejected = false;
};

// Counts samples in cells and judges them.
//
// The number of samples: for a sampler with cell probabilities p + d instead of p, Pearson's
// statistic over n samples is asymptotically noncentral chi-square (k - 1 degrees) with
//   lambda = n sum d_i^2 / p_i >= n (sum |d_i|)^2 / sum p_i = 4 n TV^2      (Cauchy-Schwarz),
// and its power grows with lambda. So n = lambda* / (4 TV^2), where lambda* is the noncentrality
// that gives the wanted power, suffices whatever shape the bias has.
//
// Cells with fewer than 5 expected samples are pooled, which may hide some of a bias: with pooled
// mass m, 2 TV = sum |d_i| loses at most the 2 min(gain, loss) <= 2 m that cancel inside the pool,
// so that n is computed with TV - m. Samples in a cell of probability 0 reject outright.
class ChiSquareTest {
 public:
  // `probabilities` of the cells, summing to 1.
  explicit ChiSquareTest(std::vector<double> probabilities, ChiSquareSettings settings = {});

  // How many samples to add.
  int64_t samples() const { return samples_; }
  int degrees() const { return degrees_; }

  void add(size_t cell, int64_t count = 1) { observed_[cell] += count; }
  // Judges the samples so far, which should be samples() many.
  ChiSquareResult result() const;

 private:
  // What pooling comes to with n samples.
  struct Pooling {
    int cells = 0;
    double mass = 0;
  };
  Pooling pooling(double n) const;
  bool pooled(size_t cell, double n) const { return probabilities_[cell] * n < 5; }

  std::vector<double> probabilities_;
  ChiSquareSettings settings_;
  std::vector<int64_t> observed_;
  int64_t samples_ = 0;
  int degrees_ = 0;
};

}  // namespace aerie::stats

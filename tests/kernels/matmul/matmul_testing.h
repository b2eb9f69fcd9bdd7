// The products of the vector backends transcribed one number at a time, from blocks as files have
// them, and outputs that show what was written where.
#pragma once

#include "tests/kernels/kernel_testing.h"

namespace aerie::kernels {

// Thirty-two weights: w = d * sub[half] * code, and + m * min[half] if has_min.
struct WeightGroup {
  int codes[kActivationGroup];  // the zero point taken off
  int sub[2] = {1, 1};          // of the first and the second half
  int min[2] = {1, 1};
  float d = 0.0f;
  float m = 0.0f;
  bool has_min = false;
  bool has_halves = false;  // whether these differ between the halves
};

// The groups of one row of k weights of a block format.
std::vector<WeightGroup> decode_row(DType dtype, const std::byte* row, int64_t k);

// All rows of x times all of w, [rows][n]:
//   acc = 0; for each group, or each of its halves if they differ: dot = sum(code * x code), in
//   whole numbers, acc = fma(dot, (d * sub) * x scale, acc), and with a minimum
//   acc = fma(m * min, x scale * sum(x codes), acc);
// of floats: for each k, acc[k % 2] = fma(x, w, acc[k % 2]), and their sum.
std::vector<float> exact_products(const Weights& w, const Activations& x);

// [rows][n] with gaps between rows; ends where its memory does.
class MatmulOutput {
 public:
  MatmulOutput(int64_t rows, int64_t n, int64_t gap);
  // Fills the rows with something to add to.
  void randomize(Random& random);

  float* data() { return y_.data(); }
  int64_t stride() const { return stride_; }
  std::vector<float> values() const;  // [rows][n]
  bool gaps_untouched() const;
  MatmulTarget target(const PackedMatrix& w, bool accumulate = false) {
    return {&w, y_.data(), stride_, accumulate};
  }

 private:
  int64_t rows_, n_, stride_;
  Fenced<float> y_;
};

// One product of the first x.rows rows, [rows][n].
std::vector<float> product(const Backend& backend, int threads, const PackedMatrix& w,
                           const Activations& x);

// Lengths of k for the type, odd ones among them.
std::vector<int64_t> lengths_for(DType dtype);

}  // namespace aerie::kernels

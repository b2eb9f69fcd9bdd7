#include "tests/kernels/row_ops_testing.h"

#include <algorithm>
#include <cmath>

namespace aerie::kernels {

QuantizedGroup group_of(const Activations& x, size_t g) {
  const RowCodes all = read_codes(x);
  const auto floats = x.floats.as<float>().subspan(g * 32, 32);
  QuantizedGroup group = {floats, {}, all.scales[g], {}, {}};
  std::copy_n(all.codes.data() + g * 32, 32, group.codes.data());
  std::copy_n(all.sums.data() + g * 3, 3, group.sums.data());
  std::copy_n(all.scaled_sums.data() + g * 3, 3, group.scaled_sums.data());
  return group;
}

void expect_relative(double actual, double expected, double relative, double absolute) {
  EXPECT_LE(std::fabs(actual - expected), relative * std::fabs(expected) + absolute)
      << actual << " instead of " << expected;
}

void expect_codes_follow(const Backend& backend, const Activations& out) {
  if (!backend.wants_int8(DType::kQ8_0)) return;
  const Activations again = activations_of(
      backend, out.floats.as<float>().first(static_cast<size_t>(out.rows * out.k)), out.k, true);
  for (size_t g = 0; g < static_cast<size_t>(out.rows * out.k / 32); ++g) {
    const QuantizedGroup a = group_of(out, g), b = group_of(again, g);
    EXPECT_EQ(a.codes, b.codes);
    EXPECT_EQ(a.scale, b.scale);
    EXPECT_EQ(a.sums, b.sums);
    EXPECT_EQ(a.scaled_sums, b.scaled_sums);
  }
}

Activations ones(const Backend& backend, int64_t rows, int64_t k, bool int8) {
  return activations_of(backend, std::vector<float>(static_cast<size_t>(rows * k), 1.0f), k, int8);
}

}  // namespace aerie::kernels

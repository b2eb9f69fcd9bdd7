// That what is counted is what is done: the operations show in the results.
#include "kernels/machine_peak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace aerie::kernels::machine_peak_test {

std::vector<Isa> isas() {
  std::vector<Isa> all;
  std::ranges::copy_if(built_isas(), std::back_inserter(all), isa_supported);
  return all;
}

// Bytes are 1 and floats of either kind 2^-10, so that every multiplication adds 1 or 2^-20.
TEST(MachinePeak, DotsDoTheirOperations) {
  constexpr int64_t kSteps = 64;
  for (const Isa isa : isas()) {
    EXPECT_TRUE(has_dot(isa, Dot::kFloat));
    EXPECT_EQ(has_dot(isa, Dot::kInt8), isa != Isa::kReference);
    for (const Dot dot : {Dot::kInt8, Dot::kBfloat, Dot::kFloat}) {
      if (!has_dot(isa, dot)) continue;
      for (int variant = 0; variant < dot_variants(dot); ++variant) {
        const double unit = dot == Dot::kInt8 ? 1.0 : 0x1p-20;
        const auto pairs = static_cast<double>(kSteps * dot_operations(dot, variant) / 2);
        EXPECT_EQ(run_dots(isa, dot, variant, kSteps), pairs * unit)
            << isa_name(isa) << " " << dot_name(dot) << " " << variant;
      }
    }
  }
}

TEST(MachinePeak, ReadsReadEverythingOnce) {
  constexpr int64_t kBytes = 16 * 4096;
  Buffer buffer = *Buffer::allocate(kBytes);
  for (float& one : buffer.as<float>()) one = 1.0f;
  for (const Isa isa : isas()) {
    for (int variant = 0; variant < read_variants(); ++variant) {
      EXPECT_EQ(read_range(isa, variant, buffer.data(), kBytes), kBytes / sizeof(float))
          << isa_name(isa) << " " << variant;
    }
  }
}

}  // namespace aerie::kernels::machine_peak_test

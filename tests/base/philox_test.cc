#include "base/philox.h"

#include <gtest/gtest.h>

#include <array>

#include "base/philox_tops.h"

namespace aerie::philox_test {

// Known answers of Random123 (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformsAreOpenAndSymmetric) {
  EXPECT_EQ(uniform53(0, 0), 0x1p-53);
  EXPECT_EQ(uniform53(0xffffffff, 0xffffffff), 1.0 - 0x1p-53);
  EXPECT_EQ(uniform53(0x80000000, 0), 0.5 + 0x1p-53);
  EXPECT_EQ(uniform53(0x7fffffff, 0xffffffff), 0.5 - 0x1p-53);
  EXPECT_EQ(uniform53(0x12345678, 0x9abcdef0) + uniform53(~0x12345678u, ~0x9abcdef0u), 1.0);
}

TEST(Philox, ManyBlocksAreThoseOfEach) {
  for (const PhiloxBlock counter : {PhiloxBlock{0, 0, 0, 0}, PhiloxBlock{7, 8, 9, 10},
                                    PhiloxBlock{0xffffffe0, 0xffffffff, 0x80000001, 0xfffffffe}}) {
    for (const PhiloxKey key : {PhiloxKey{0, 0}, PhiloxKey{0xffffffff, 0x9e3779b9}}) {
      std::array<uint32_t, kPhiloxTops> tops;
      philox_tops(counter, key, tops);
      for (uint32_t i = 0; i < kPhiloxTops / 2; ++i) {
        const PhiloxBlock one =
            philox4x32({counter[0] + i, counter[1], counter[2], counter[3]}, key);
        EXPECT_EQ(tops[2 * i], one[0]) << i;
        EXPECT_EQ(tops[2 * i + 1], one[2]) << i;
      }
    }
  }
}

}  // namespace aerie::philox_test

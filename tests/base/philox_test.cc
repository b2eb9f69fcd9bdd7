#include "base/philox.h"

#include <gtest/gtest.h>

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

}  // namespace aerie::philox_test

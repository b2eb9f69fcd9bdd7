#include "format/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace aerie::checksum_test {

std::vector<std::byte> random_bytes(size_t size) {
  std::mt19937_64 random(7);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(Checksum, PartsAddUp) {
  const std::vector<std::byte> bytes = random_bytes(1000);
  const std::span<const std::byte> all = bytes;
  for (const size_t offset : {size_t{0}, size_t{64}, size_t{1} << 40}) {
    const uint64_t whole = checksum(all, offset);
    for (size_t cut = 0; cut <= all.size(); cut += 64) {
      EXPECT_EQ(checksum(all.first(cut), offset) + checksum(all.subspan(cut), offset + cut), whole);
    }
  }
  EXPECT_EQ(checksum({}), 0u);
}

TEST(Checksum, EveryBitCounts) {
  std::vector<std::byte> bytes = random_bytes(300);
  std::set<uint64_t> seen = {checksum(bytes)};
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_TRUE(seen.insert(checksum(bytes)).second) << "byte " << i << " bit " << bit;
      bytes[i] ^= static_cast<std::byte>(1 << bit);
    }
  }
}

// Lines that change places, are dropped or come twice, zeros among them.
TEST(Checksum, PlacesCount) {
  for (std::vector<std::byte> bytes : {random_bytes(256), std::vector<std::byte>(256)}) {
    const uint64_t whole = checksum(bytes);
    EXPECT_NE(checksum(bytes, 64), whole);
    EXPECT_NE(checksum(std::span(bytes).first(192)), whole);
    const bool zeros = bytes[0] == std::byte{0} && bytes[1] == std::byte{0};
    std::swap_ranges(bytes.begin(), bytes.begin() + 64, bytes.begin() + 64);
    EXPECT_EQ(checksum(bytes) == whole, zeros);
    std::fill(bytes.begin() + 64, bytes.begin() + 128, std::byte{0});
    EXPECT_EQ(checksum(bytes) == whole, zeros);
  }
}

}  // namespace aerie::checksum_test

// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC'11, section 3.3). A number is a pure function of (key, counter): nothing is stored,
// so draws can be made in any order, on any thread, and made again.
#pragma once

#include <array>
#include <cstdint>

namespace aerie {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxBlock = std::array<uint32_t, 4>;

// Ten rounds. Thread-safe, no state.
inline PhiloxBlock philox4x32(PhiloxBlock counter, PhiloxKey key) {
  constexpr uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMul0} * counter[0];
    const uint64_t p1 = uint64_t{kMul1} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// (hi, lo) as a uniform in the open interval (0, 1): an odd multiple of 2^-53, so that it is exact
// in a double and neither 0 nor 1, and log(u) and log(1 - u) stay finite.
inline double uniform53(uint32_t hi, uint32_t lo) {
  const uint64_t bits = ((uint64_t{hi} << 32) | lo) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1.0p-52;
}

}  // namespace aerie

// The sum of products of the tensor cores, bit for bit.
#pragma once

#include <cstdint>

namespace simt {

// The addend and the products of a step are aligned to the largest exponent among them, cut (not
// rounded) behind `fraction` bits, added exactly, and the sum is cut to binary32 (Xie et al.
// 2511.10909, Khattak and Mikaitis 2512.07004). An inner length of 16 takes 16 / terms steps.
struct TensorCore {
  int terms = 16;     // 8 or 16
  int fraction = 25;  // 24 or 25
};
inline constexpr TensorCore kHopper{16, 25};
inline constexpr TensorCore kAmpere{8, 24};  // and Ada

// Where a lane of a warp has its part: d[4], a[4], b[2].
struct MmaLane {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

// d (16 x 8) += a (16 x 16) b (16 x 8) of 32 lanes, of binary16 or bfloat16.
void warp_mma(const MmaLane* const (&lanes)[32], bool binary16, const TensorCore& core);

}  // namespace simt

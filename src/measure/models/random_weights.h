// Random weights of any type, made as blocks rather than quantised: most types have no quantiser
// here, and speed does not depend on values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace aerie::measure {

// About the deviation that models are initialised with.
inline constexpr double kWeightDeviation = 0.02;

// Which row of which tensor of which model.
struct RowSeed {
  uint64_t model = 0;
  uint64_t tensor = 0;
  uint64_t row = 0;
};

// Makes rows of blocks whose weights have mean 0 and kWeightDeviation, all codes alike likely;
// floats are nearly normal. Every block is one that a quantiser may write: no NaN, no infinity.
class RandomWeights {
 public:
  explicit RandomWeights(DType type);

  // Writes dtype_bytes(type, elements) bytes to `out`: the same for the same seed on every machine.
  // Requires a multiple of the block. Safe to call from several threads.
  void fill(const RowSeed& seed, int64_t elements, std::byte* out) const;

 private:
  void fill_blocks(const RowSeed& seed, int64_t blocks, double scale, uint8_t* out) const;

  DType type_;
  double scale_ = 1.0;  // of blocks: what makes the deviation right
};

}  // namespace aerie::measure

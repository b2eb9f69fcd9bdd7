// Weights as a device takes them (device.h: MatrixKind), made on the host.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/device/device.h"
#include "tensor/tensor.h"

namespace aerie::device {

// The kind that loses nothing of the type's weights, or next to nothing: kBf16x2 keeps 16 bits of
// the significand of those that have no other.
MatrixKind kind_of(DType type);

struct MatrixBytes {
  int64_t codes = 0, scales = 0, supers = 0;  // of a panel
  int64_t all() const { return codes + scales + supers; }
};
// Of so many inputs.
MatrixBytes panel_bytes(MatrixKind kind, int64_t k);
int64_t panels_of(int64_t n);
int64_t steps_of(int64_t k);

// Panel `index` of a matrix [k, n]: panel_bytes() of codes, scales and supers. `kind` is
// kind_of(weights.dtype) or kBf16x2.
void pack_panel(const TensorView& weights, MatrixKind kind, int64_t index, std::byte* codes,
                std::byte* scales, std::byte* supers);

}  // namespace aerie::device

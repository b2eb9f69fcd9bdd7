// Whether scales can be those of blocks.
#pragma once

#include <cmath>

#include "tensor/dtype.h"

namespace aerie {

// Whether binary16 holds it as it is.
inline bool fits_f16(float scale) {
  return std::isfinite(scale) && f16_to_f32(f32_to_f16(scale)) == scale;
}

}  // namespace aerie

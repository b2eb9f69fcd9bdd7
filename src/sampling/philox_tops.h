// Many blocks of philox.h at once, of which only the leading bits of the uniforms are wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/philox.h"

namespace aerie {

inline constexpr size_t kPhiloxTops = 128;

// Of the blocks with the first word of the counter going up by one from `counter`: words 0 and 2 of
// each, in this order. The same on every processor.
void philox_tops(PhiloxBlock counter, PhiloxKey key, std::span<uint32_t, kPhiloxTops> out);

}  // namespace aerie

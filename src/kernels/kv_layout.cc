#include "kernels/kv_layout.h"

#include <cstring>

namespace aerie::kernels {

void copy_kv(const KvLayout& layout, uint16_t* kv, int32_t from, int32_t to) {
  if (from == to) return;
  const int from_offset = from % kPagePositions, to_offset = to % kPagePositions;
  for (int h = 0; h < layout.kv_heads; ++h) {
    const uint16_t* keys = kv + layout.keys(from / kPagePositions, h);
    uint16_t* to_keys = kv + layout.keys(to / kPagePositions, h);
    for (int d = 0; d < layout.head_dim; ++d) {
      to_keys[layout.key_element(to_offset, d)] = keys[layout.key_element(from_offset, d)];
    }
    const uint16_t* values = kv + layout.values(from / kPagePositions, h);
    uint16_t* to_values = kv + layout.values(to / kPagePositions, h);
    std::memcpy(to_values + int64_t{to_offset} * layout.head_dim,
                values + int64_t{from_offset} * layout.head_dim,
                static_cast<size_t>(layout.head_dim) * sizeof(uint16_t));
  }
}

}  // namespace aerie::kernels

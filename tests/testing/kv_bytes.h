// Which bytes of a layer's plane belong to a slot.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kv_layout.h"

namespace aerie::test {

// Offsets of all bytes that the slot's keys and values take: head by head, each element's key then
// value, unless that is the beginning of the key, then their scales.
inline std::vector<int64_t> bytes_of_slot(const kernels::KvLayout& layout, int32_t slot) {
  const bool codes = layout.type == kernels::KvType::kQ8;
  const int64_t size = codes ? 1 : 2;
  const int page = slot / kernels::kPagePositions, offset = slot % kernels::kPagePositions;
  std::vector<int64_t> bytes;
  const auto add = [&](int64_t from, int64_t count) {
    for (int64_t i = 0; i < count; ++i) bytes.push_back(from + i);
  };
  for (int head = 0; head < layout.kv_heads; ++head) {
    const int64_t keys = layout.keys(page, head), values = layout.values(page, head);
    for (int d = 0; d < layout.head_dim; ++d) {
      add(keys + size * layout.key_element(offset, d), size);
      if (layout.value_prefix == 0) add(values + size * layout.value_element(offset, d), size);
    }
    if (!codes) continue;
    add(keys + layout.scale_at(offset, 0), 4);
    add(values + layout.scale_at(offset, layout.value_prefix), 4);
  }
  return bytes;
}

}  // namespace aerie::test

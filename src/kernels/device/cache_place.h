// Where keys and values lie in a plane of the cache: for each page and head of keys and values,
// keys [kPage][head_dim], then values [head_dim][kPage].
#pragma once

#include <cstdint>

#include "kernels/device/device.h"
#include "kernels/simt/simt.h"

namespace aerie::device {

// The keys and values of the slot's page, in elements from the beginning of the plane.
SIMT_DEV int64_t head_offset(const CacheShape& shape, int slot, int kv_head) {
  return (static_cast<int64_t>(slot / kPage) * shape.kv_heads + kv_head) * (2 * kPage) *
         shape.head_dim;
}
// From there: element d of the slot's key and value.
SIMT_DEV int key_element(const CacheShape& shape, int slot, int d) {
  return slot % kPage * shape.head_dim + d;
}
SIMT_DEV int value_element(const CacheShape& shape, int slot, int d) {
  return (shape.head_dim + d) * kPage + slot % kPage;
}

}  // namespace aerie::device

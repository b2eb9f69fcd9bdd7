// Keys and values into the cache, written over the sixteen lanes of simd_*.h.
#pragma once

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

void store_halves(const KvLayout& layout, const float* key, const float* value, int offset,
                  std::byte* keys, std::byte* values) {
  auto* key_halves = reinterpret_cast<uint16_t*>(keys);
  auto* value_halves = reinterpret_cast<uint16_t*>(values) + layout.value_element(offset, 0);
  for (int d = 0; d < layout.head_dim; d += kLanes) {
    store_half(value_halves + d, load(value + d));
    uint16_t rounded[kLanes];
    store_half(rounded, load(key + d));
    for (int i = 0; i < kLanes; ++i) key_halves[layout.key_element(offset, d + i)] = rounded[i];
  }
}

// The same numbers as quantize_kv().
float quantize_row(const float* x, int head_dim, int8_t* codes) {
  constexpr float kLeast = 1e-35f;
  const Extent extent = extent_of(x, head_dim);
  if (extent.zero_or_nan != 0.0f || extent.largest < kLeast) {
    for (int d = 0; d < head_dim; d += kLanes) store_i8(codes + d, set1(0));
    return extent.zero_or_nan != 0.0f ? __builtin_nanf("") : 0.0f;
  }
  const Floats inverse = set1(127.0f / extent.largest);
  for (int d = 0; d < head_dim; d += kLanes) {
    store_i8(codes + d, to_ints(mul(load(x + d), inverse)));
  }
  return extent.largest / 127.0f;
}

void store_codes(const KvLayout& layout, const float* key, const float* value, int offset,
                 std::byte* keys, std::byte* values) {
  int8_t codes[kMaxHeadDim];
  reinterpret_cast<float*>(keys + layout.elements())[offset] =
      quantize_row(key, layout.head_dim, codes);
  auto* key_codes = reinterpret_cast<int8_t*>(keys);
  for (int d = 0; d < layout.head_dim; ++d) key_codes[layout.key_element(offset, d)] = codes[d];

  reinterpret_cast<float*>(values + layout.elements())[offset] =
      quantize_row(value, layout.head_dim, codes);
  auto* value_codes = reinterpret_cast<int8_t*>(values);
  for (int d = 0; d < layout.head_dim; ++d) value_codes[layout.value_element(offset, d)] = codes[d];
}

// A key of which the value is the beginning.
void store_long_key(const KvLayout& layout, const float* key, int offset, std::byte* keys) {
  const int64_t at = layout.key_element(offset, 0);
  if (layout.type == KvType::kF16) {
    auto* halves = reinterpret_cast<uint16_t*>(keys) + at;
    for (int d = 0; d < layout.head_dim; d += kLanes) store_half(halves + d, load(key + d));
    return;
  }
  auto* codes = reinterpret_cast<int8_t*>(keys) + at;
  const int prefix = layout.value_prefix;
  *reinterpret_cast<float*>(keys + layout.scale_at(offset, 0)) = quantize_row(key, prefix, codes);
  *reinterpret_cast<float*>(keys + layout.scale_at(offset, prefix)) =
      quantize_row(key + prefix, layout.head_dim - prefix, codes + prefix);
}

void store_kv(const KvLayout& layout, const float* k, const float* v, int32_t slot, std::byte* kv) {
  const int64_t page = slot / kPagePositions;
  const int offset = slot % kPagePositions;
  const auto store_head = layout.type == KvType::kF16 ? store_halves : store_codes;
  for (int h = 0; h < layout.kv_heads; ++h) {
    const int64_t at = static_cast<int64_t>(h) * layout.head_dim;
    if (layout.value_prefix > 0) {
      store_long_key(layout, k + at, offset, kv + layout.keys(page, h));
      continue;
    }
    store_head(layout, k + at, v + at, offset, kv + layout.keys(page, h),
               kv + layout.values(page, h));
  }
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE

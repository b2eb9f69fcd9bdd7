#include "kernels/kv_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace aerie::kernels {
namespace {

// `Element` as the type of the layout has it.
template <typename Element>
void copy_elements(const KvLayout& layout, std::byte* kv, int32_t from, int32_t to) {
  const int from_offset = from % kPagePositions, to_offset = to % kPagePositions;
  for (int h = 0; h < layout.kv_heads; ++h) {
    const auto at = [&](int64_t half) { return reinterpret_cast<Element*>(kv + half); };
    const Element* keys = at(layout.keys(from / kPagePositions, h));
    Element* to_keys = at(layout.keys(to / kPagePositions, h));
    for (int d = 0; d < layout.head_dim; ++d) {
      to_keys[layout.key_element(to_offset, d)] = keys[layout.key_element(from_offset, d)];
    }
    if (layout.value_prefix > 0) continue;
    const Element* values = at(layout.values(from / kPagePositions, h));
    Element* to_values = at(layout.values(to / kPagePositions, h));
    for (int d = 0; d < layout.head_dim; ++d) {
      to_values[layout.value_element(to_offset, d)] = values[layout.value_element(from_offset, d)];
    }
  }
}

void copy_scales(const KvLayout& layout, std::byte* kv, int32_t from, int32_t to) {
  const auto copy = [&](int64_t to_half, int64_t from_half, int d) {
    std::memcpy(kv + to_half + layout.scale_at(to % kPagePositions, d),
                kv + from_half + layout.scale_at(from % kPagePositions, d), sizeof(float));
  };
  const int to_page = to / kPagePositions, from_page = from / kPagePositions;
  for (int h = 0; h < layout.kv_heads; ++h) {
    copy(layout.keys(to_page, h), layout.keys(from_page, h), 0);
    // Of the values, or of the rest of the key.
    copy(layout.values(to_page, h), layout.values(from_page, h), layout.value_prefix);
  }
}

}  // namespace

const char* kv_type_name(KvType type) {
  return type == KvType::kF16 ? "f16" : "q8";
}

Share share_of(int count, int rank, int ranks) {
  const auto bound = [&](int r) { return static_cast<int>(int64_t{count} * r / ranks); };
  return {bound(rank), bound(rank + 1) - bound(rank)};
}

KvLayout layout_of_rank(const KvLayout& whole, int rank, int ranks) {
  if (ranks == 1) return whole;
  KvLayout own = whole;
  own.all_heads = whole.kv_heads;
  if (whole.kv_heads < ranks) return own;
  const Share share = share_of(whole.kv_heads, rank, ranks);
  own.first_head = share.begin;
  own.kv_heads = share.count;
  return own;
}

float quantize_kv(const float* x, int head_dim, int8_t* codes) {
  // Below it 127 / x would be infinite, or x / 127 subnormal.
  constexpr float kNegligible = 1e-35f;
  float largest = 0.0f;
  bool finite = true;
  for (int d = 0; d < head_dim; ++d) {
    finite = finite && std::isfinite(x[d]);
    largest = std::max(largest, std::fabs(x[d]));
  }
  if (!finite || largest < kNegligible) {
    std::fill_n(codes, head_dim, int8_t{0});
    return finite ? 0.0f : std::nanf("");
  }
  const float inverse = 127.0f / largest;
  for (int d = 0; d < head_dim; ++d) {
    codes[d] = static_cast<int8_t>(std::nearbyint(x[d] * inverse));
  }
  return largest / 127.0f;
}

void copy_kv(const KvLayout& layout, std::byte* kv, int32_t from, int32_t to) {
  if (from == to) return;
  if (layout.type == KvType::kF16) {
    copy_elements<uint16_t>(layout, kv, from, to);
  } else {
    copy_elements<int8_t>(layout, kv, from, to);
    copy_scales(layout, kv, from, to);
  }
}

}  // namespace aerie::kernels

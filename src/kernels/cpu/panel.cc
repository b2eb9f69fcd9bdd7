#include "kernels/cpu/panel.h"

#include <algorithm>
#include <cstring>

namespace aerie::kernels {
namespace {

// Groups of 32 k that are taken from a row at a time: a block of the types with blocks of 256.
constexpr int kSpan = 8;
using SpanOfRows = WeightGroup[kPanelRows][kSpan];

// Sixteen bytes, as numbers of type T.
template <typename T>
struct VectorOf {
  typedef T Type __attribute__((vector_size(16)));
};
template <typename T>
using Vector = typename VectorOf<T>::Type;
template <typename T>
constexpr int kTileLanes = 16 / sizeof(T);

template <typename T>
Vector<T> interleave(Vector<T> a, Vector<T> b, bool high) {
  if constexpr (sizeof(T) == 4) {
    return high ? __builtin_shufflevector(a, b, 2, 6, 3, 7)
                : __builtin_shufflevector(a, b, 0, 4, 1, 5);
  } else {
    return high ? __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
                : __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  }
}

// Rows become columns. A number's place is (row, column), of equally many bits; to interleave the
// first half of all numbers with the second moves the top bit of each place to the bottom.
template <typename T>
void transpose(Vector<T> (&tile)[kTileLanes<T>]) {
  constexpr int kRows = kTileLanes<T>;
  for (int bit = 1; bit < kRows; bit *= 2) {
    Vector<T> next[kRows];
    for (int i = 0; i < kRows / 2; ++i) {
      next[2 * i] = interleave<T>(tile[i], tile[i + kRows / 2], false);
      next[2 * i + 1] = interleave<T>(tile[i], tile[i + kRows / 2], true);
    }
    for (int i = 0; i < kRows; ++i) tile[i] = next[i];
  }
}

// Writes kTileLanes<T> columns of 16 rows, [column][row]; row_at(row) is a row's vector.
template <typename T, typename RowAt>
void write_columns(const RowAt& row_at, uint8_t* to) {
  for (int first = 0; first < kPanelRows; first += kTileLanes<T>) {
    Vector<T> tile[kTileLanes<T>];
    for (int i = 0; i < kTileLanes<T>; ++i) tile[i] = row_at(first + i);
    transpose<T>(tile);
    for (int i = 0; i < kTileLanes<T>; ++i) {
      std::memcpy(to + (i * kPanelRows + first) * static_cast<int>(sizeof(T)), &tile[i], 16);
    }
  }
}

using Words = Vector<uint32_t>;

Words load_words(const uint8_t* codes) {
  Words words;
  std::memcpy(&words, codes, sizeof(words));
  return words;
}

void write_bytes(const SpanOfRows& rows, int g, uint8_t* to) {
  for (int half = 0; half < 2; ++half) {
    const auto row_at = [&](int row) { return load_words(rows[row][g].codes + 16 * half); };
    write_columns<uint32_t>(row_at, to + half * 256);
  }
}

void write_nibbles(const SpanOfRows& rows, int g, uint8_t* to) {
  const auto row_at = [&](int row) {
    const uint8_t* codes = rows[row][g].codes;
    const Words first = load_words(codes), second = load_words(codes + 16);
    const Words even = __builtin_shufflevector(first, second, 0, 2, 4, 6);
    const Words odd = __builtin_shufflevector(first, second, 1, 3, 5, 7);
    return (even & 0x0F0F0F0F) | (odd << 4 & 0xF0F0F0F0);
  };
  write_columns<uint32_t>(row_at, to);
}

// Puts kBits bits of each code of group g, from kShift up, where codes of so many bits lie. Words
// of four codes are moved whole.
template <int kBits, int kShift>
void write_bits(const SpanOfRows& rows, int g, uint8_t* to) {
  constexpr int kShared = 8 / kBits;  // codes in a byte
  constexpr uint32_t kMask = ((1u << kBits) - 1) * 0x01010101u;
  for (int w = 0; w < kBits; ++w) {
    for (int row = 0; row < kPanelRows; ++row) {
      uint32_t codes[kShared];
      std::memcpy(codes, rows[row][g].codes + 4 * kShared * w, sizeof(codes));
      uint32_t word = 0;
      for (int s = 0; s < kShared; ++s) word |= (codes[s] >> kShift & kMask) << (s * kBits);
      std::memcpy(to + (w * kPanelRows + row) * 4, &word, 4);
    }
  }
}

void write_codes(const PanelFormat& format, const SpanOfRows& rows, int g, uint8_t* to) {
  if (format.bits == 8) return write_bytes(rows, g, to);
  if (format.bits == 2) {
    write_bits<2, 0>(rows, g, to);
    if (format.high_bits == 1) write_bits<1, 2>(rows, g, to + 2 * 64);
    return;
  }
  write_nibbles(rows, g, to);
  if (format.high_bits == 1) write_bits<1, 4>(rows, g, to + 4 * 64);
  if (format.high_bits == 2) write_bits<2, 4>(rows, g, to + 4 * 64);
}

// One number of each row's group.
template <typename T, typename Number>
void write_numbers(const SpanOfRows& rows, int g, const Number& number, uint8_t* to) {
  T numbers[kPanelRows];
  for (int row = 0; row < kPanelRows; ++row) numbers[row] = number(rows[row][g]);
  std::memcpy(to, numbers, sizeof(numbers));
}

// `head` is where the super-block's numbers go; null if this is not its first group, or there are
// none.
void write_scales(PanelScale scale, const SpanOfRows& rows, int g, uint8_t* to, uint8_t* head) {
  const auto d = [](const WeightGroup& group) { return group.d; };
  const auto m = [](const WeightGroup& group) { return group.m; };
  switch (scale) {
    case PanelScale::kFloat:
      return;
    case PanelScale::kZero:
    case PanelScale::kZeroBfloat:
      return write_numbers<uint16_t>(rows, g, d, to);
    case PanelScale::kMin:
      write_numbers<uint16_t>(rows, g, d, to);
      return write_numbers<uint16_t>(rows, g, m, to + 32);
    case PanelScale::kHalfE4M3:
    case PanelScale::kSuperZero:
    case PanelScale::kSuper:
    case PanelScale::kSuperHalf:
    case PanelScale::kSuperHalfMin:
    case PanelScale::kSuperHalfOdd:
      break;
  }
  const auto both_odd = [](const WeightGroup& group) {
    return static_cast<uint8_t>(group.sc[0] / 2 | group.sc[1] / 2 << 4);
  };
  const auto first = [](const WeightGroup& group) { return group.sc[0]; };
  if (scale == PanelScale::kSuperHalfOdd) {
    write_numbers<uint8_t>(rows, g, both_odd, to);
  } else {
    write_numbers<uint8_t>(rows, g, first, to);
  }
  if (panel_group_scales(scale) == 32) {
    write_numbers<uint8_t>(
        rows, g, [](const WeightGroup& group) { return group.sc[1]; }, to + 16);
  }
  if (head == nullptr) return;
  write_numbers<uint16_t>(rows, g, d, head);
  write_numbers<uint16_t>(rows, g, m, head + 32);
}

void prefetch(const uint8_t* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i);
}

void pack_quantized(const TensorView& weights, int64_t first_row, int rows, uint8_t* panel) {
  const int64_t k = weights.row_length(), groups = k / kGroup;
  const PanelFormat format = panel_format(weights.dtype);
  const uint8_t* sources[kPanelRows];
  for (int row = 0; row < rows; ++row) {
    sources[row] = reinterpret_cast<const uint8_t*>(weights.row(first_row + row));
  }
  const int64_t span_bytes = dtype_bytes(weights.dtype, kSpan * kGroup);
  const int64_t panel_source = kPanelRows * weights.row_bytes();
  SpanOfRows span = {};  // missing rows stay 0
  for (int64_t first = 0; first < groups; first += kSpan) {
    const int64_t count = std::min<int64_t>(kSpan, groups - first);
    for (int row = 0; row < rows; ++row) {
      const int64_t at = first / kSpan * span_bytes;
      prefetch(sources[row] + at + panel_source, span_bytes);
      read_weight_groups(weights.dtype, sources[row], first, count, span[row]);
    }
    for (int g = 0; g < count; ++g) {
      write_codes(format, span, g, panel + (first + g) * format.group_codes());
      write_scales(
          format.scale, span, g, panel + format.scales_at(k) + (first + g) * format.group_scales(),
          g == 0 && has_heads(format.scale) ? panel + format.heads_at(k) + first / kSpan * 64
                                            : nullptr);
    }
  }
}

template <typename T>
void pack_floats(const TensorView& weights, int64_t first_row, int rows, uint8_t* panel) {
  const int64_t row_bytes = weights.row_bytes();
  const auto* source = reinterpret_cast<const uint8_t*>(weights.row(first_row));
  const auto copy = [&](int row, int64_t at, void* to, size_t bytes) {
    if (row < rows) std::memcpy(to, source + row * row_bytes + at, bytes);
  };
  int64_t at = 0;
  for (; at + 16 <= row_bytes; at += 16) {
    const auto row_at = [&](int row) {
      Vector<T> values = {};
      copy(row, at, &values, 16);
      if (at % 64 == 0) __builtin_prefetch(source + (row + kPanelRows) * row_bytes + at);
      return values;
    };
    write_columns<T>(row_at, panel + at * kPanelRows);
  }
  for (; at < row_bytes; at += sizeof(T)) {
    for (int row = 0; row < kPanelRows; ++row) {
      copy(row, at, panel + at * kPanelRows + row * static_cast<int>(sizeof(T)), sizeof(T));
    }
  }
}

}  // namespace

int64_t panel_bytes(DType dtype, int64_t k) {
  const PanelFormat format = panel_format(dtype);
  int64_t bytes = 0;
  switch (format.scale) {
    case PanelScale::kFloat:
      bytes = dtype_bytes(dtype, k * kPanelRows);
      break;
    case PanelScale::kZero:
    case PanelScale::kZeroBfloat:
    case PanelScale::kHalfE4M3:
    case PanelScale::kMin:
      bytes = format.heads_at(k);
      break;
    case PanelScale::kSuperZero:
    case PanelScale::kSuper:
    case PanelScale::kSuperHalf:
    case PanelScale::kSuperHalfMin:
    case PanelScale::kSuperHalfOdd:
      bytes = format.heads_at(k) + k / (8 * kGroup) * 64;
      break;
  }
  return (bytes + 63) / 64 * 64;
}

void pack_panels(const TensorView& weights, int64_t begin, int64_t end, std::byte* out) {
  const int64_t bytes = panel_bytes(weights.dtype, weights.row_length());
  for (int64_t p = begin; p < end; ++p) {
    auto* panel = reinterpret_cast<uint8_t*>(out + p * bytes);
    const int64_t first = p * kPanelRows;
    const auto rows = static_cast<int>(std::min<int64_t>(kPanelRows, weights.rows() - first));
    if (weights.dtype == DType::kF32) {
      pack_floats<uint32_t>(weights, first, rows, panel);
    } else if (panel_format(weights.dtype).scale == PanelScale::kFloat) {
      pack_floats<uint16_t>(weights, first, rows, panel);
    } else {
      pack_quantized(weights, first, rows, panel);
    }
  }
}

}  // namespace aerie::kernels

#include "kernels/device/pack.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tensor/blocks.h"
#include "tensor/dtype.h"

namespace aerie::device {
namespace {

constexpr int64_t kGroups = kStep / kWeightGroup;  // of a step
constexpr int64_t kSuper = 256;

// Element (step of 16, fragment's word, half) of lane t of 32 of k, see unpack.h.
int k_of(bool sixteens, int step, int word, int half, int t) {
  const int within = word / 2 * 2 + half;
  return sixteens ? step * 16 + t * 4 + within : t * 8 + step * 4 + within;
}

// Calls for each code of a panel's step of 64: fn(lane, step, word, half, output in panel, k).
template <typename F>
void for_each_code(bool sixteens, const F& fn) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int step = 0; step < 4; ++step) {
      for (int word = 0; word < 4; ++word) {
        const int output = lane / 4 + word % 2 * 8;
        for (int half = 0; half < 2; ++half) {
          const int k = step / 2 * 32 + k_of(sixteens, step % 2, word, half, lane % 4);
          fn(lane, step, word, half, output, k);
        }
      }
    }
  }
}

template <typename T>
void put(std::byte* to, int64_t index, T value) {
  std::memcpy(to + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// A panel of floats.
class FloatPanel {
 public:
  FloatPanel(const TensorView& weights, int64_t index)
      : k_(weights.row_length()), values_(static_cast<size_t>(kPanel * k_)) {
    for (int r = 0; r < kPanel; ++r) {
      const int64_t row = index * kPanel + r;
      if (row >= weights.rows()) continue;  // zeros
      dequantize(weights.dtype, weights.row(row), k_, values_.data() + static_cast<size_t>(r * k_));
    }
  }
  float at(int output, int64_t k) const {
    return k < k_ ? values_[static_cast<size_t>(output * k_ + k)] : 0.0f;
  }

 private:
  int64_t k_;
  std::vector<float> values_;
};

void pack_floats(const TensorView& weights, int terms, int64_t index, std::byte* codes) {
  const FloatPanel panel(weights, index);
  const int64_t steps = steps_of(weights.row_length());
  for (int64_t s = 0; s < steps; ++s) {
    for_each_code(false, [&](int lane, int step, int word, int half, int output, int k) {
      float rest = panel.at(output, s * kStep + k);
      for (int term = 0; term < terms; ++term) {
        const uint16_t bits = f32_to_bf16(rest);
        rest -= bf16_to_f32(bits);
        const int64_t place = (((s * 4 + step) * terms + term) * 32 + lane) * 8 + word * 2 + half;
        put(codes, place, bits);
      }
    });
  }
}

// A panel of codes with their scales.
class CodePanel {
 public:
  CodePanel(const TensorView& weights, int64_t index)
      : groups_(weights.row_length() / kWeightGroup),
        all_(static_cast<size_t>(kPanel * groups_)),
        none_{},
        zero_(code_zero(weights.dtype)) {
    std::fill(std::begin(none_.codes), std::end(none_.codes), static_cast<uint8_t>(zero_));
    for (int r = 0; r < kPanel; ++r) {
      WeightGroup* out = all_.data() + static_cast<size_t>(r * groups_);
      const int64_t row = index * kPanel + r;
      if (row < weights.rows()) {
        read_weight_groups(weights.dtype, reinterpret_cast<const uint8_t*>(weights.row(row)), 0,
                           groups_, out);
      } else {
        std::fill_n(out, groups_, none_);
      }
    }
  }
  const WeightGroup& group(int output, int64_t g) const {
    return g < groups_ ? all_[static_cast<size_t>(output * groups_ + g)] : none_;
  }
  uint8_t code(int output, int64_t k) const {
    return group(output, k / kWeightGroup).codes[k % kWeightGroup];
  }

 private:
  int64_t groups_;
  std::vector<WeightGroup> all_;
  WeightGroup none_;
  int zero_;
};

void pack_nibbles(const CodePanel& panel, bool sixteens, int64_t s, std::byte* to) {
  std::array<uint32_t, 128> words = {};  // [lane][step]
  for_each_code(sixteens, [&](int lane, int step, int word, int half, int output, int k) {
    const uint32_t code = panel.code(output, s * kStep + k) & 15u;
    words[static_cast<size_t>(lane * 4 + step)] |= code << (4 * word + 16 * half);
  });
  std::memcpy(to, words.data(), sizeof words);
}

void pack_high_bits(const CodePanel& panel, int64_t s, std::byte* to) {
  std::array<uint32_t, 64> words = {};  // [lane][two steps]
  for_each_code(true, [&](int lane, int step, int word, int half, int output, int k) {
    const uint32_t code = panel.code(output, s * kStep + k) >> 4 & 3u;
    words[static_cast<size_t>(lane * 2 + step / 2)] |= code
                                                       << (2 * word + 8 * (step % 2) + 16 * half);
  });
  std::memcpy(to, words.data(), sizeof words);
}

void pack_bytes(const CodePanel& panel, int zero, int64_t s, std::byte* to) {
  for_each_code(false, [&](int lane, int step, int word, int half, int output, int k) {
    const int code = panel.code(output, s * kStep + k) - zero;
    const int place =
        step / 2 * 512 + lane * 16 + step % 2 * 8 + word / 2 * 4 + word % 2 + half * 2;
    to[place] = static_cast<std::byte>(static_cast<int8_t>(code));
  });
}

// Of outputs g and g + 8 for each group, as the type has it: [g][group][2].
void pack_scales(const CodePanel& panel, int64_t s, std::byte* to) {
  for (int g = 0; g < 8; ++g) {
    for (int64_t group = 0; group < kGroups; ++group) {
      for (int second = 0; second < 2; ++second) {
        put(to, (g * kGroups + group) * 2 + second,
            panel.group(g + second * 8, s * kGroups + group).d);
      }
    }
  }
}

// Scales, then minima: [g][scale, minimum][group][2].
void pack_k_scales(const CodePanel& panel, int64_t s, std::byte* to) {
  for (int g = 0; g < 8; ++g) {
    for (int which = 0; which < 2; ++which) {
      for (int64_t group = 0; group < kGroups; ++group) {
        for (int second = 0; second < 2; ++second) {
          put(to, ((g * 2 + which) * kGroups + group) * 2 + second,
              panel.group(g + second * 8, s * kGroups + group).sc[which]);
        }
      }
    }
  }
}

// int8 for 16 of k: [g][step][2].
void pack_sixteenth_scales(const CodePanel& panel, int64_t s, std::byte* to) {
  for (int g = 0; g < 8; ++g) {
    for (int step = 0; step < 4; ++step) {
      for (int second = 0; second < 2; ++second) {
        put(to, (g * 4 + step) * 2 + second,
            panel.group(g + second * 8, s * kGroups + step / 2).sc[step % 2]);
      }
    }
  }
}

// binary16 d, and dmin behind, of outputs g and g + 8: [g][d, m][2].
void pack_supers(const CodePanel& panel, bool with_min, int64_t super, std::byte* to) {
  const int numbers = with_min ? 2 : 1;
  for (int g = 0; g < 8; ++g) {
    for (int second = 0; second < 2; ++second) {
      const WeightGroup& group = panel.group(g + second * 8, super * (kSuper / kWeightGroup));
      put(to, (g * numbers) * 2 + second, group.d);
      if (with_min) put(to, (g * numbers + 1) * 2 + second, group.m);
    }
  }
}

void pack_codes(const TensorView& weights, MatrixKind kind, int64_t index, std::byte* codes,
                std::byte* scales, std::byte* supers) {
  const CodePanel panel(weights, index);
  const int64_t steps = steps_of(weights.row_length());
  const MatrixBytes bytes = panel_bytes(kind, weights.row_length());
  const int64_t of_codes = bytes.codes / steps, of_scales = bytes.scales / steps;
  for (int64_t s = 0; s < steps; ++s) {
    std::byte* to = codes + s * of_codes;
    std::byte* scale = scales + s * of_scales;
    switch (kind) {
      case MatrixKind::kQ4:
      case MatrixKind::kFp4:  // codes are what they stand for
        pack_nibbles(panel, false, s, to);
        pack_scales(panel, s, scale);
        break;
      case MatrixKind::kQ4K:
        pack_nibbles(panel, false, s, to);
        pack_k_scales(panel, s, scale);
        break;
      case MatrixKind::kQ8:
        pack_bytes(panel, code_zero(weights.dtype), s, to);
        pack_scales(panel, s, scale);
        break;
      case MatrixKind::kQ6K:
        pack_nibbles(panel, true, s, to);
        pack_high_bits(panel, s, to + 512);
        pack_sixteenth_scales(panel, s, scale);
        break;
      case MatrixKind::kBf16:
      case MatrixKind::kBf16x2:
        break;
    }
  }
  if (bytes.supers == 0) return;
  const int64_t count = weights.row_length() / kSuper, of_super = bytes.supers / count;
  for (int64_t i = 0; i < count; ++i) {
    pack_supers(panel, kind == MatrixKind::kQ4K, i, supers + i * of_super);
  }
}

}  // namespace

MatrixKind kind_of(DType type) {
  switch (type) {
    case DType::kBF16:
      return MatrixKind::kBf16;
    case DType::kMXFP4:
      return MatrixKind::kFp4;
    case DType::kQ4_0:
      return MatrixKind::kQ4;
    case DType::kQ4_K:
      return MatrixKind::kQ4K;
    case DType::kQ8_0:
      return MatrixKind::kQ8;
    case DType::kQ6_K:
      return MatrixKind::kQ6K;
    default:
      return MatrixKind::kBf16x2;
  }
}

int64_t panels_of(int64_t n) {
  return (n + kPanel - 1) / kPanel;
}

int64_t steps_of(int64_t k) {
  return (k + kStep - 1) / kStep;
}

MatrixBytes panel_bytes(MatrixKind kind, int64_t k) {
  const int64_t steps = steps_of(k), supers = steps / 4;
  switch (kind) {
    case MatrixKind::kBf16:
      return {2048 * steps, 0, 0};
    case MatrixKind::kBf16x2:
      return {4096 * steps, 0, 0};
    case MatrixKind::kQ4:
    case MatrixKind::kFp4:
      return {512 * steps, 64 * steps, 0};
    case MatrixKind::kQ4K:
      return {512 * steps, 64 * steps, 64 * supers};
    case MatrixKind::kQ8:
      return {1024 * steps, 64 * steps, 0};
    case MatrixKind::kQ6K:
      return {768 * steps, 64 * steps, 32 * supers};
  }
  return {};
}

void pack_panel(const TensorView& weights, MatrixKind kind, int64_t index, std::byte* codes,
                std::byte* scales, std::byte* supers) {
  if (kind == MatrixKind::kBf16) return pack_floats(weights, 1, index, codes);
  if (kind == MatrixKind::kBf16x2) return pack_floats(weights, 2, index, codes);
  pack_codes(weights, kind, index, codes, scales, supers);
}

}  // namespace aerie::device

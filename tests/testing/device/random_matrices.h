// Matrices of random codes in the memory of the tests' device, and other random numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/device/pack.h"
#include "tensor/blocks.h"
#include "tests/testing/device/device_array.h"

namespace aerie::test {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  float number() { return normal_(engine_); }
  uint8_t byte() { return static_cast<uint8_t>(engine_()); }
  std::vector<float> numbers(size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = number();
    return values;
  }
  std::vector<float> positive(size_t count) {
    std::vector<float> values = numbers(count);
    for (float& value : values) value = value * value * device::kStep;
    return values;
  }
  std::vector<uint16_t> bf16(size_t count) {
    std::vector<uint16_t> values(count);
    for (uint16_t& value : values) value = f32_to_bf16(number());
    return values;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> normal_;  // draws two at a time
};

// Codes may be any bytes; of numbers of 16 bits, a part of them, the exponents are kept small.
inline std::vector<uint8_t> random_codes(Random& random, size_t bytes) {
  std::vector<uint8_t> codes(bytes);
  for (uint8_t& code : codes) code = random.byte();
  return codes;
}
inline std::vector<uint8_t> random_halves(Random& random, size_t bytes) {
  std::vector<uint8_t> halves = random_codes(random, bytes);
  for (size_t i = 1; i < bytes; i += 2) halves[i] = static_cast<uint8_t>((halves[i] & 0x83) | 0x2c);
  return halves;
}

class Weights {
 public:
  Weights(Random& random, device::MatrixKind kind, int n, int k)
      : bytes_(device::panel_bytes(kind, k)),
        codes_(kind == device::MatrixKind::kBf16 || kind == device::MatrixKind::kBf16x2
                   ? random_halves(random, all(n, bytes_.codes))
                   : random_codes(random, all(n, bytes_.codes))),
        scales_(kind == device::MatrixKind::kQ4 || kind == device::MatrixKind::kQ8 ||
                        kind == device::MatrixKind::kFp4
                    ? random_halves(random, all(n, bytes_.scales))
                    : random_codes(random, all(n, bytes_.scales))),
        supers_(random_halves(random, all(n, bytes_.supers))),
        bias_(random.numbers(static_cast<size_t>(n))) {
    matrix_ = {kind, n, static_cast<int>(device::panels_of(n)),
               static_cast<int>(device::steps_of(k))};
    matrix_.codes = codes_.data();
    matrix_.scales = scales_.data();
    matrix_.supers = supers_.data();
  }
  const device::Matrix& matrix() const { return matrix_; }
  device::Matrix biased() const {
    device::Matrix matrix = matrix_;
    matrix.bias = bias_.data();
    matrix.factor = 0.75f;
    return matrix;
  }

 private:
  static size_t all(int n, int64_t bytes) {
    return static_cast<size_t>(std::max<int64_t>(device::panels_of(n) * bytes, 16));
  }

  device::MatrixBytes bytes_;
  DeviceArray<uint8_t> codes_, scales_, supers_;
  DeviceArray<float> bias_;
  device::Matrix matrix_;
};

}  // namespace aerie::test

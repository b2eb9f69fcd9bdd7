#include "sampling/weight.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

namespace aerie {
namespace {

// 1 / n!, n = 0 .. 13: on |r| <= log(2) / 2 the series' remainder is below 2^-57.
constexpr auto kInverseFactorial = [] {
  std::array<double, 14> table{};
  double factorial = 1.0;
  for (size_t n = 0; n < table.size(); ++n) {
    if (n > 0) factorial *= static_cast<double>(n);
    table[n] = 1.0 / factorial;
  }
  return table;
}();

// Sums side by side.
constexpr size_t kDoubles = 8;

// Left to itself the compiler vectorises neither the conversion nor the selections, nor what is
// wider than the processor's vectors. Each double is what a lone one would be.
template <size_t Width>
struct Lanes {
  // Compilers drop the attribute of an alias that depends on a parameter.
  typedef double Doubles __attribute__((vector_size(Width * sizeof(double))));
  typedef float Floats __attribute__((vector_size(Width * sizeof(float))));
  typedef uint64_t Bits __attribute__((vector_size(Width * sizeof(uint64_t))));
};

// exp(x) = 2^k exp(r), k the integer nearest to x / log 2 (Cody and Waite's two-part log 2). Adding
// 1.5 * 2^52 rounds to an integer and leaves it in the low bits. Double and Bit are double and
// uint64_t, or their vectors.
template <typename Bit, typename Double>
[[gnu::always_inline]] inline void exp_lanes(const Double& x, Double& out) {
  constexpr double kLog2E = 0x1.71547652b82fep+0;
  constexpr double kLn2Hi = 0x1.62e42feep-1;
  constexpr double kLn2Lo = 0x1.a39ef35793c76p-33;
  constexpr double kRound = 0x1.8p+52;
  constexpr double kLowest = -708.0;

  const Double lowest = Double{} + kLowest;
  const Double clamped = x >= kLowest ? x : lowest;
  const Double rounded = clamped * kLog2E + kRound;
  const Double k = rounded - kRound;
  const Double r = (clamped - k * kLn2Hi) - k * kLn2Lo;
  Double sum = Double{} + kInverseFactorial.back();
  for (size_t n = kInverseFactorial.size() - 1; n-- > 0;) sum = sum * r + kInverseFactorial[n];
  // Not std::bit_cast: a function that returns a vector is another one for each instruction set.
  const Double scale = __builtin_bit_cast(Double, (__builtin_bit_cast(Bit, rounded) + 1023) << 52);
  out = x >= kLowest ? sum * scale : Double{};
}

// Adds the weights of `blocks` times kDoubles logits to `lanes`, each to that of its place.
using AddWeights = void (*)(const float* logits, size_t blocks, float best, double temperature,
                            double* lanes);

template <size_t Width>
[[gnu::always_inline]] inline void add_lanes(const float* logits, size_t blocks, float best,
                                             double temperature, double* lanes) {
  using Doubles = typename Lanes<Width>::Doubles;
  constexpr size_t kVectors = kDoubles / Width;
  Doubles sums[kVectors];
  std::memcpy(&sums, lanes, sizeof(sums));
  for (size_t i = 0; i < blocks; ++i) {
    for (size_t v = 0; v < kVectors; ++v) {
      typename Lanes<Width>::Floats block;  // logits may lie anywhere
      std::memcpy(&block, logits + i * kDoubles + v * Width, sizeof(block));
      const Doubles x = __builtin_convertvector(block, Doubles) - static_cast<double>(best);
      // Dividing by 1 changes nothing, but takes as long as all the rest.
      Doubles weights;
      exp_lanes<typename Lanes<Width>::Bits>(temperature == 1.0 ? x : x / temperature, weights);
      sums[v] += weights;
    }
  }
  std::memcpy(lanes, &sums, sizeof(sums));
}

void add_by_two(const float* logits, size_t blocks, float best, double temperature, double* lanes) {
  add_lanes<2>(logits, blocks, best, temperature, lanes);
}

#ifdef __x86_64__

__attribute__((target("avx2"))) void add_by_four(const float* logits, size_t blocks, float best,
                                                 double temperature, double* lanes) {
  add_lanes<4>(logits, blocks, best, temperature, lanes);
}

__attribute__((target("avx512f,avx512dq"))) void add_by_eight(const float* logits, size_t blocks,
                                                              float best, double temperature,
                                                              double* lanes) {
  add_lanes<8>(logits, blocks, best, temperature, lanes);
}

AddWeights fastest() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return add_by_eight;
  return __builtin_cpu_supports("avx2") ? add_by_four : add_by_two;
}

#else

AddWeights fastest() {
  return add_by_two;
}

#endif

}  // namespace

double exp_nonpositive(double x) {
  double out = 0;
  exp_lanes<uint64_t>(x, out);
  return out;
}

double sum_weights(std::span<const float> logits, float best, double temperature) {
  static const AddWeights add_weights = fastest();
  double lanes[kDoubles] = {};
  const size_t blocks = logits.size() / kDoubles;
  add_weights(logits.data(), blocks, best, temperature, lanes);
  float rest[kDoubles];
  std::ranges::fill(rest, -std::numeric_limits<float>::infinity());
  std::ranges::copy(logits.subspan(blocks * kDoubles), rest);
  add_weights(rest, 1, best, temperature, lanes);
  const double even = (lanes[0] + lanes[2]) + (lanes[4] + lanes[6]);
  const double odd = (lanes[1] + lanes[3]) + (lanes[5] + lanes[7]);
  return even + odd;
}

}  // namespace aerie

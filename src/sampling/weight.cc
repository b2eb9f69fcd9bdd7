#include "sampling/weight.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
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

// Two doubles at a time, which every 64-bit machine can; each computes what a lone one would. Left
// to itself the compiler does not vectorise the conversion and the selections.
constexpr size_t kPair = 2;
typedef double Doubles __attribute__((vector_size(kPair * sizeof(double))));
typedef float Floats __attribute__((vector_size(kPair * sizeof(float))));
typedef uint64_t Bits __attribute__((vector_size(kPair * sizeof(uint64_t))));

// exp(x) = 2^k exp(r), k the integer nearest to x / log 2 (Cody and Waite's two-part log 2). Adding
// 1.5 * 2^52 rounds to an integer and leaves it in the low bits. Double and Bit are double and
// uint64_t, or their vectors.
template <typename Bit, typename Double>
inline Double exp_lanes(Double x) {
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
  const Double scale = std::bit_cast<Double>((std::bit_cast<Bit>(rounded) + 1023) << 52);
  return x >= kLowest ? sum * scale : Double{};
}

}  // namespace

double exp_nonpositive(double x) {
  return exp_lanes<uint64_t>(x);
}

double sum_weights(std::span<const float> logits, float best, double temperature) {
  constexpr size_t kPairs = 4;
  Doubles lanes[kPairs] = {};
  for (size_t first = 0; first < logits.size(); first += kPairs * kPair) {
    float block[kPairs * kPair];
    std::ranges::fill(block, -std::numeric_limits<float>::infinity());
    std::copy_n(logits.data() + first, std::min(std::size(block), logits.size() - first), block);
    for (size_t i = 0; i < kPairs; ++i) {
      const Floats pair = {block[i * kPair], block[i * kPair + 1]};
      const Doubles x = __builtin_convertvector(pair, Doubles) - static_cast<double>(best);
      lanes[i] += exp_lanes<Bits>(x / temperature);
    }
  }
  const Doubles sum = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  return sum[0] + sum[1];
}

}  // namespace aerie

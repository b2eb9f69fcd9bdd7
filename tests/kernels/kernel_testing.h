// What the kernel tests share: random data, weights with every code and scale in them, memory that
// faults when touched past its end, comparison bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/backend.h"
#include "tests/testing/sweeps.h"

namespace aerie::kernels {

// Deterministic and the same on every platform (splitmix64: Steele et al. 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  size_t index(size_t n) { return static_cast<size_t>(next() % n); }
  float uniform(float low, float high) {
    return low + (high - low) * (static_cast<float>(next() >> 40) * 0x1.0p-24f);
  }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[index(i)]);
    }
  }

 private:
  uint64_t state_;
};

std::vector<float> uniform_floats(Random& random, int64_t count, float low, float high);

// Lives as long as the program.
ThreadPool& pool_of(int threads);
inline constexpr int kThreadCounts[] = {1, 2, 3, 5};

// Those of this build, whether the processor has them or not.
inline const std::vector<Isa> kAllIsas(built_isas().begin(), built_isas().end());
inline const std::vector<Isa> kVectorIsas(built_isas().begin(), built_isas().end() - 1);
inline constexpr DType kAllDTypes[] = {
    DType::kF32,   DType::kF16,     DType::kBF16,   DType::kQ4_0,  DType::kQ4_1,    DType::kQ5_0,
    DType::kQ5_1,  DType::kQ8_0,    DType::kQ2_K,   DType::kQ3_K,  DType::kQ4_K,    DType::kQ5_K,
    DType::kQ6_K,  DType::kIQ4_NL,  DType::kIQ4_XS, DType::kMXFP4, DType::kIQ2_XXS, DType::kIQ2_XS,
    DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S,  DType::kNVFP4};
static_assert(std::size(kAllDTypes) == kDTypeCount);
inline constexpr DType kBlockDTypes[] = {
    DType::kQ4_0,   DType::kQ4_1,    DType::kQ5_0,  DType::kQ5_1,    DType::kQ8_0,
    DType::kQ2_K,   DType::kQ3_K,    DType::kQ4_K,  DType::kQ5_K,    DType::kQ6_K,
    DType::kIQ4_NL, DType::kIQ4_XS,  DType::kMXFP4, DType::kIQ2_XXS, DType::kIQ2_XS,
    DType::kIQ2_S,  DType::kIQ3_XXS, DType::kIQ3_S, DType::kNVFP4};
static_assert(std::size(kBlockDTypes) == kDTypeCount - 3);

bool is_float(DType dtype);

// Tests of one instruction set; skipped where the processor lacks it.
template <typename Param>
class BackendTest : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (!isa_supported(isa())) GTEST_SKIP() << "this processor lacks " << isa_name(isa());
    backend_ = aerie::kernels::backend(isa());
    ASSERT_NE(backend_, nullptr);
    ASSERT_EQ(backend_->isa(), isa());
  }
  Isa isa() const {
    if constexpr (std::is_same_v<Param, Isa>) {
      return this->GetParam();
    } else {
      return std::get<0>(this->GetParam());
    }
  }
  const Backend& backend() const { return *backend_; }

 private:
  const Backend* backend_ = nullptr;
};
using IsaTest = BackendTest<Isa>;
using IsaDTypeTest = BackendTest<std::tuple<Isa, DType>>;

std::string isa_test_name(const testing::TestParamInfo<Isa>& info);
std::string dtype_test_name(const testing::TestParamInfo<DType>& info);
std::string isa_dtype_test_name(const testing::TestParamInfo<std::tuple<Isa, DType>>& info);

// A number for these bytes: tests of several instruction sets make the same, and find by it what
// came of them.
uint64_t digest(std::span<const std::byte> bytes, uint64_t before = 0);

// Equal bits; any NaN equals any other. The message names the first difference.
testing::AssertionResult same_bits(std::span<const float> a, std::span<const float> b);
bool same_bits(float a, float b);

// `count` elements that end where the memory does: touching the one after them, even under a mask
// that a sanitizer does not see, ends the program.
template <typename T>
class Fenced {
 public:
  explicit Fenced(int64_t count);
  explicit Fenced(std::span<const T> values);
  ~Fenced();
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::span<T> span() { return {data_, static_cast<size_t>(count_)}; }
  T& operator[](int64_t i) { return data_[i]; }

 private:
  void* mapping_ = nullptr;
  size_t usable_ = 0;  // bytes before the fence
  T* data_ = nullptr;
  int64_t count_ = 0;
};

// A [k, n] matrix as a file has it, without a byte more than that.
struct Weights {
  DType dtype = DType::kF32;
  int64_t n = 0;
  int64_t k = 0;
  std::vector<std::byte> bytes;

  TensorView view() const { return {dtype, Device::kCpu, {k, n, 1, 1}, bytes.data()}; }
};
// Codes, sub-scales and signs of every value that the format can hold; scales of a few powers of
// two.
Weights random_weights(DType dtype, int64_t n, int64_t k, Random& random);
// Any bytes: scales that are infinite, NaN or of any size among them.
Weights hostile_weights(DType dtype, int64_t n, int64_t k, Random& random);
// The same scales, but every other byte of every block is `byte`. Not for floats.
Weights filled_weights(DType dtype, int64_t n, int64_t k, uint8_t byte, Random& random);
// What a quantiser makes of values in [-1, 1].
Weights plausible_weights(DType dtype, int64_t n, int64_t k, Random& random);

PackedMatrix pack(const Backend& backend, const Weights& weights, int threads = 1);

// `values` [rows][k], quantised if `int8`. There is room for these rows and no more.
Activations activations_of(const Backend& backend, std::span<const float> values, int64_t k,
                           bool int8);
// Any codes in [-127, 127] and scales, with the right sums: all that a product may be handed.
Activations random_activations(const Backend& backend, int64_t rows, int64_t k, bool int8,
                               Random& random);

// The 8-bit form of activations, row by row, whatever order they lie in.
struct RowCodes {
  std::vector<int8_t> codes;       // [rows][k]
  std::vector<float> scales;       // [rows][k / group]
  std::vector<int32_t> sums;       // [rows][k / group][3]: of the first half, the second, of all
  std::vector<float> scaled_sums;  // the same shape: times the scale
};
// Requires x.has_int8.
RowCodes read_codes(const Activations& x);
// Codes and scales; the sums are made of them.
void write_codes(const RowCodes& rows, Activations& x);

// The first `rows` rows of x.
Activations first_rows(const Activations& x, int64_t rows);

}  // namespace aerie::kernels

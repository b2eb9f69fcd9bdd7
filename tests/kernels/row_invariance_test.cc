// Row invariance as a property: a row gives the same bits alone and in batches of any size, at any
// place, among any neighbours, with any number of threads.
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "tests/kernels/matmul/matmul_testing.h"
#include "tests/testing/kv_bytes.h"

namespace aerie::kernels::row_invariance_test {

constexpr int64_t kMostRows = 64;

// Rows of `in` numbers to rows of `out` numbers. Doubles hold floats and codes alike.
struct RowOperation {
  int64_t in = 0;
  int64_t out = 0;
  std::function<std::vector<double>(ThreadPool&, std::span<const float> rows, int64_t count)> run;
};

// Ordinary rows and the worst of neighbours.
std::vector<std::vector<float>> row_library(int64_t length, Random& random) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 12; ++i) {
    rows.push_back(uniform_floats(random, length, -1.0f, 1.0f));
    for (float& x : rows.back()) x = std::ldexp(x, 2 * i - 12);
  }
  rows.emplace_back(length, 0.0f);
  rows.push_back(uniform_floats(random, length, -1e-40f, 1e-40f));
  rows.push_back(uniform_floats(random, length, -3e38f, 3e38f));
  for (const float odd : {1e30f, std::nanf(""), kInf, -kInf}) {
    rows.push_back(uniform_floats(random, length, -1.0f, 1.0f));
    rows.back()[static_cast<size_t>(random.below(length))] = odd;
    rows.emplace_back(length, odd);
  }
  return rows;
}

bool same_row(const double* a, const double* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<uint64_t>(a[i]) != std::bit_cast<uint64_t>(b[i])) return false;
  }
  return true;
}

void check_row_invariance(const RowOperation& op, uint64_t seed) {
  Random random(seed);
  const std::vector<std::vector<float>> rows = row_library(op.in, random);
  std::vector<std::vector<double>> alone;
  alone.reserve(rows.size());
  for (const std::vector<float>& row : rows) alone.push_back(op.run(pool_of(1), row, 1));
  std::vector<int64_t> counts(kMostRows);
  std::iota(counts.begin(), counts.end(), 1);
  for (const int64_t count : test::sampled(counts, 6)) {
    for (const int threads : test::sampled(kThreadCounts, 1)) {
      std::vector<size_t> picks;
      std::vector<float> batch;
      for (int64_t r = 0; r < count; ++r) {
        picks.push_back(random.index(rows.size()));
        batch.insert(batch.end(), rows[picks.back()].begin(), rows[picks.back()].end());
      }
      const std::vector<double> together = op.run(pool_of(threads), batch, count);
      ASSERT_EQ(static_cast<int64_t>(together.size()), count * op.out);
      for (int64_t r = 0; r < count; ++r) {
        const size_t pick = picks[static_cast<size_t>(r)];
        ASSERT_TRUE(
            same_row(&together[static_cast<size_t>(r * op.out)], alone[pick].data(), op.out))
            << "input " << pick << " as row " << r << " of " << count << ", " << threads
            << " threads";
      }
    }
  }
}

Activations empty_activations(int64_t rows, int64_t k, bool int8) {
  return activations_of(*backend(Isa::kReference),
                        std::vector<float>(static_cast<size_t>(rows * k), 77.0f), k, int8);
}

// All that a row of activations holds: floats, codes, scales, sums.
std::vector<double> contents(const Activations& x) {
  std::vector<double> all;
  const auto append = [&all](const auto& values, int64_t begin, int64_t count) {
    for (int64_t i = begin; i < begin + count; ++i) all.push_back(values[static_cast<size_t>(i)]);
  };
  const int64_t groups = x.k / kActivationGroup;
  const RowCodes codes = x.has_int8 ? read_codes(x) : RowCodes();
  for (int64_t r = 0; r < x.rows; ++r) {
    append(x.floats.as<float>(), r * x.k, x.k);
    if (!x.has_int8) continue;
    append(codes.codes, r * x.k, x.k);
    append(codes.scales, r * groups, groups);
    append(codes.sums, r * groups * 3, groups * 3);
    append(codes.scaled_sums, r * groups * 3, groups * 3);
  }
  return all;
}

int64_t contents_length(int64_t k, bool int8) {
  return int8 ? 2 * k + 7 * (k / kActivationGroup) : k;
}

// Columns [from, from + length) of rows of `width`.
std::vector<float> columns(std::span<const float> rows, int64_t width, int64_t from,
                           int64_t length) {
  std::vector<float> part;
  for (size_t at = 0; at < rows.size(); at += static_cast<size_t>(width)) {
    const auto row = rows.subspan(at + static_cast<size_t>(from), static_cast<size_t>(length));
    part.insert(part.end(), row.begin(), row.end());
  }
  return part;
}

using MatmulInvarianceTest = IsaDTypeTest;

TEST_P(MatmulInvarianceTest, Matmul) {
  const DType dtype = std::get<1>(GetParam());
  const int64_t block = dtype_info(dtype).block_elements;
  Random random(30);
  for (const auto& [blocks, n] : {std::pair<int64_t, int64_t>{3, 49}, {2, 200}}) {
    const int64_t k = block == 1 ? 100 * blocks : block * blocks;
    const PackedMatrix packed = pack(backend(), random_weights(dtype, n, k, random));
    const auto run = [&](ThreadPool& pool, std::span<const float> rows, int64_t) {
      const Activations x = activations_of(backend(), rows, k, backend().wants_int8(dtype));
      const std::vector<float> y = product(backend(), pool.threads(), packed, x);
      return std::vector<double>(y.begin(), y.end());
    };
    check_row_invariance({k, n, run}, 31);
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatmulInvarianceTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::ValuesIn(kAllDTypes)),
                         isa_dtype_test_name);

using RowInvarianceTest = IsaTest;

TEST_P(RowInvarianceTest, Quantize) {
  const int64_t k = 192;
  const auto run = [&](ThreadPool& pool, std::span<const float> rows, int64_t) {
    Activations x = activations_of(backend(), rows, k, false);
    x.has_int8 = true;
    backend().quantize(pool, x);
    return contents(x);
  };
  check_row_invariance({k, contents_length(k, true), run}, 32);
}

TEST_P(RowInvarianceTest, RmsNorm) {
  Random random(33);
  for (const auto& [k, int8] : {std::pair{160, true}, std::pair{37, false}}) {
    const std::vector<float> weight = uniform_floats(random, k, 0.5f, 1.5f);
    const int64_t length = k;
    const bool codes = int8;
    const auto run = [&](ThreadPool& pool, std::span<const float> rows, int64_t count) {
      Activations out = empty_activations(count, length, codes);
      backend().rms_norm(pool, rows.data(), length, weight.data(), 1e-5, out);
      return contents(out);
    };
    check_row_invariance({length, contents_length(length, codes), run}, 34);
  }
}

TEST_P(RowInvarianceTest, LayerNorm) {
  Random random(39);
  for (const auto& [k, int8] : {std::pair{160, true}, std::pair{37, false}}) {
    const std::vector<float> weight = uniform_floats(random, k, 0.5f, 1.5f);
    const std::vector<float> bias = uniform_floats(random, k, -0.5f, 0.5f);
    const int64_t length = k;
    const bool codes = int8;
    const auto run = [&](ThreadPool& pool, std::span<const float> rows, int64_t count) {
      Activations out = empty_activations(count, length, codes);
      backend().layer_norm(pool, rows.data(), length, weight.data(), bias.data(), 1e-5, out);
      return contents(out);
    };
    check_row_invariance({length, contents_length(length, codes), run}, 40);
  }
}

TEST_P(RowInvarianceTest, RmsNormHeads) {
  constexpr int kHeads = 3, kHeadDim = 40;
  Random random(41);
  const std::vector<float> weight = uniform_floats(random, kHeadDim, 0.5f, 1.5f);
  const auto run = [&](ThreadPool& pool, std::span<const float> rows, int64_t count) {
    std::vector<float> x(rows.begin(), rows.end());
    backend().rms_norm_heads(pool, x.data(), count, kHeads, kHeadDim, weight.data(), 1e-5);
    return std::vector<double>(x.begin(), x.end());
  };
  check_row_invariance({kHeads * kHeadDim, kHeads * kHeadDim, run}, 42);
}

TEST_P(RowInvarianceTest, AddRmsNorm) {
  constexpr int64_t kLength = 75;
  Random random(43);
  const std::vector<float> weight = uniform_floats(random, kLength, 0.5f, 1.5f);
  const auto run = [&](ThreadPool& pool, std::span<const float> rows, int64_t count) {
    const std::vector<float> y = columns(rows, 2 * kLength, 0, kLength);
    std::vector<float> residual = columns(rows, 2 * kLength, kLength, kLength);
    backend().add_rms_norm(pool, y.data(), count, kLength, weight.data(), 1e-5, residual.data());
    return std::vector<double>(residual.begin(), residual.end());
  };
  check_row_invariance({2 * kLength, kLength, run}, 44);
}

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu,
                                       Activation::kClampedSilu};

TEST_P(RowInvarianceTest, Gated) {
  for (const Activation activation : kActivations) {
    for (const auto& [k, int8] : {std::pair{160, true}, std::pair{37, false}}) {
      const int64_t length = k;
      const bool codes = int8;
      const auto run = [&](ThreadPool& pool, std::span<const float> rows, int64_t count) {
        const std::vector<float> gate = columns(rows, 2 * length, 0, length);
        const std::vector<float> up = columns(rows, 2 * length, length, length);
        Activations out = empty_activations(count, length, codes);
        backend().gated(pool, activation, gate.data(), up.data(), out);
        return contents(out);
      };
      check_row_invariance({2 * length, contents_length(length, codes), run}, 35);
    }
  }
}

TEST_P(RowInvarianceTest, Activate) {
  for (const Activation activation : kActivations) {
    const int64_t length = 96;
    const auto run = [&](ThreadPool& pool, std::span<const float> rows, int64_t count) {
      Activations out = empty_activations(count, length, true);
      backend().activate(pool, activation, rows.data(), out);
      return contents(out);
    };
    check_row_invariance({length, contents_length(length, true), run}, 45);
  }
}

TEST_P(RowInvarianceTest, SoftCap) {
  constexpr int64_t kLength = 1003;  // the rows together make shares of several threads
  const auto run = [&](ThreadPool& pool, std::span<const float> rows, int64_t count) {
    std::vector<float> x(rows.begin(), rows.end());
    backend().soft_cap(pool, x.data(), count * kLength, 30.0f);
    return std::vector<double>(x.begin(), x.end());
  };
  check_row_invariance({kLength, kLength, run}, 46);
}

TEST_P(RowInvarianceTest, Rope) {
  constexpr int kHeads = 3, kHeadDim = 32, kTurned = 24;
  const int64_t width = kHeads * kHeadDim, in = width + kTurned;
  for (const RopeStyle style : {RopeStyle::kPairs, RopeStyle::kHalves}) {
    const auto run = [&](ThreadPool& pool, std::span<const float> rows, int64_t count) {
      std::vector<float> x = columns(rows, in, 0, width);
      const std::vector<float> cos = columns(rows, in, width, kTurned / 2);
      const std::vector<float> sin = columns(rows, in, width + kTurned / 2, kTurned / 2);
      backend().rope(pool, x.data(), count, kHeads, kHeadDim, kTurned, style, cos.data(),
                     sin.data());
      return std::vector<double>(x.begin(), x.end());
    };
    check_row_invariance({in, width, run}, 36);
  }
}

TEST_P(RowInvarianceTest, StoreKv) {
  for (const auto& [type, prefix] :
       {std::pair{KvType::kF16, 0}, {KvType::kQ8, 0}, {KvType::kF16, 32}, {KvType::kQ8, 32}}) {
    const KvLayout layout = {2, 48, type, prefix};
    const int64_t width = 2 * 48;
    Random random(37);
    const auto run = [&](ThreadPool& pool, std::span<const float> rows, int64_t count) {
      std::vector<int32_t> slots(5 * kPagePositions);
      for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
      random.shuffle(slots);
      slots.resize(static_cast<size_t>(count));
      std::vector<std::byte> kv(static_cast<size_t>(5 * layout.page()), std::byte{0x7E});
      const std::vector<float> k = columns(rows, 2 * width, 0, width);
      const std::vector<float> v = columns(rows, 2 * width, width, width);
      backend().store_kv(pool, layout, k.data(), v.data(), slots, kv.data());
      std::vector<double> stored;
      for (const int32_t slot : slots) {
        for (const int64_t at : test::bytes_of_slot(layout, slot)) {
          stored.push_back(static_cast<double>(kv[static_cast<size_t>(at)]));
        }
      }
      return stored;
    };
    const int64_t bytes = layout.page() / kPagePositions;
    check_row_invariance({2 * width, bytes, run}, 38);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RowInvarianceTest, testing::ValuesIn(kAllIsas), isa_test_name);

}  // namespace aerie::kernels::row_invariance_test

// Experts on a device: which ones rows choose, the order of their pairs, products whose bits are
// those of one matrix alone, and their sum. On the emulated device, or on the one that
// AERIE_TEST_DEVICE names.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/simt/emulation.h"
#include "tests/testing/device/device_array.h"
#include "tests/testing/device/random_matrices.h"
#include "tests/testing/device/test_device.h"
#include "tests/testing/sweeps.h"

namespace aerie::device::experts_test {

using test::device_of_tests;
using test::DeviceArray;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct RouteShape {
  int rows, experts, used, tile_rows;
  bool normalized;
};

// Rows' logits on the device, and what comes of them.
class Routed {
 public:
  Routed(const RouteShape& shape, const std::vector<float>& logits)
      : shape_(shape),
        pairs_(shape.rows * shape.used),
        count_({shape.rows}),
        logits_(logits),
        weights(std::vector<float>(size())),
        chosen(std::vector<int32_t>(size())),
        places(std::vector<int32_t>(size())),
        rows_of_pairs(std::vector<int32_t>(size())),
        tiles(std::vector<ExpertTile>(
            static_cast<size_t>(most_expert_tiles(pairs_, shape.experts, shape.tile_rows)))),
        tile_count({-1}),
        used_experts({100}),
        arrived_({0}) {}

  void run(bool adds) {
    Route args;
    args.rows = count_.data();
    args.logits = logits_.data();
    args.stride = shape_.experts + 5;
    args.experts = shape_.experts;
    args.used = shape_.used;
    args.normalized = shape_.normalized;
    args.scale = 2.5f;
    args.tile_rows = shape_.tile_rows;
    args.weights = weights.data();
    args.chosen = chosen.data();
    args.places = places.data();
    args.pairs = rows_of_pairs.data();
    args.tiles = tiles.data();
    args.tile_count = tile_count.data();
    args.used_experts = used_experts.data();
    args.adds = adds;
    args.most_rows = shape_.rows;
    args.arrived = arrived_.data();
    device_of_tests().route(args);
  }

 private:
  size_t size() const { return static_cast<size_t>(pairs_); }

  RouteShape shape_;
  int pairs_;
  DeviceArray<int32_t> count_;
  DeviceArray<float> logits_;

 public:
  DeviceArray<float> weights;
  DeviceArray<int32_t> chosen, places, rows_of_pairs;
  DeviceArray<ExpertTile> tiles;
  DeviceArray<int32_t> tile_count, used_experts;

 private:
  DeviceArray<unsigned> arrived_;
};

// In rows of experts + 5, the last of which are no logits.
std::vector<float> random_logits(const RouteShape& shape, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> logits(static_cast<size_t>(shape.rows * (shape.experts + 5)));
  for (float& logit : logits) logit = normal(engine);
  for (int r = 0; r < shape.rows; ++r) {
    std::fill_n(logits.begin() + (r + 1) * (shape.experts + 5) - 5, 5, 1e6f);
  }
  return logits;
}

std::vector<int32_t> best_of(const float* logits, const RouteShape& shape) {
  std::vector<int32_t> order(static_cast<size_t>(shape.experts));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (std::isnan(logits[b]) && !std::isnan(logits[a]));
  });
  order.resize(static_cast<size_t>(shape.used));
  return order;
}

// Whether the pairs are sorted by expert and then by row, and the tiles are of them.
void expect_order(const Routed& routed, const RouteShape& shape) {
  const auto chosen = routed.chosen.values(), places = routed.places.values(),
             rows = routed.rows_of_pairs.values();
  std::vector<int32_t> order(chosen.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t i) { return chosen[static_cast<size_t>(i)]; });
  std::vector<int32_t> experts;  // of pairs
  for (size_t place = 0; place < order.size(); ++place) {
    const auto pair = static_cast<size_t>(order[place]);
    ASSERT_EQ(places[pair], static_cast<int32_t>(place));
    ASSERT_EQ(rows[place], order[place] / shape.used);
    experts.push_back(chosen[pair]);
  }
  const auto tiles = routed.tiles.values();
  const int count = routed.tile_count.values()[0];
  ASSERT_LE(count, static_cast<int>(tiles.size()));
  int next = 0;
  for (int t = 0; t < count; ++t) {
    const ExpertTile& tile = tiles[static_cast<size_t>(t)];
    ASSERT_EQ(tile.first, next) << t;
    ASSERT_GE(tile.count, 1);
    ASSERT_LE(tile.count, shape.tile_rows);
    for (int i = 0; i < tile.count; ++i) {
      ASSERT_EQ(experts[static_cast<size_t>(tile.first + i)], tile.expert);
    }
    next += tile.count;
    const bool ends = next == static_cast<int>(experts.size()) ||
                      experts[static_cast<size_t>(next)] != tile.expert;
    ASSERT_TRUE(ends || tile.count == shape.tile_rows) << "a tile that could be larger";
  }
  ASSERT_EQ(next, static_cast<int>(experts.size()));
}

void expect_routed(const RouteShape& shape, const std::vector<float>& logits) {
  SCOPED_TRACE(testing::Message() << shape.rows << " rows, " << shape.used << " of "
                                  << shape.experts << ", tiles of " << shape.tile_rows);
  Routed routed(shape, logits);
  routed.run(false);
  const auto chosen = routed.chosen.values();
  const auto weights = routed.weights.values();
  std::vector<bool> is_used(static_cast<size_t>(shape.experts));
  for (int r = 0; r < shape.rows; ++r) {
    const float* row = logits.data() + r * (shape.experts + 5);
    const std::vector<int32_t> best = best_of(row, shape);
    double sum = 0.0;
    const auto power = [&](int32_t e) { return std::exp(double{row[e]} - double{row[best[0]]}); };
    for (int e = 0; e < shape.experts; ++e) {
      if (!shape.normalized || std::ranges::count(best, e) > 0) sum += power(e);
    }
    for (int i = 0; i < shape.used; ++i) {
      const auto at = static_cast<size_t>(r * shape.used + i);
      const int32_t expert = best[static_cast<size_t>(i)];
      ASSERT_EQ(chosen[at], expert) << "row " << r << ", " << i;
      is_used[static_cast<size_t>(expert)] = true;
      const double expected = 2.5 * power(expert) / sum;
      if (!std::isnan(expected)) {
        ASSERT_NEAR(weights[at], expected, 3e-6) << "row " << r;
      } else {
        ASSERT_TRUE(std::isnan(weights[at])) << "row " << r;
      }
    }
  }
  expect_order(routed, shape);
  const auto used = static_cast<int32_t>(std::ranges::count(is_used, true));
  EXPECT_EQ(routed.used_experts.values()[0], used);
  routed.run(true);
  EXPECT_EQ(routed.used_experts.values()[0], 2 * used);
}

TEST(DeviceRoute, ChoosesWhatIsFavouredMostAndSortsIt) {
  for (const RouteShape& shape :
       {RouteShape{1, 8, 2, 8, true}, RouteShape{1, 1, 1, 8, false}, RouteShape{9, 60, 4, 8, false},
        RouteShape{40, 128, 8, 16, true}, RouteShape{70, 7, 3, 16, true},
        RouteShape{3, 512, 32, 8, false}, RouteShape{130, 33, 1, 16, true},
        RouteShape{16, 64, 6, 8, true}, RouteShape{17, 256, 8, 8, true},
        RouteShape{512, 64, 6, 16, false}}) {
    expect_routed(shape, random_logits(shape, 11));
  }
}

TEST(DeviceRoute, WhateverTheLogitsAre) {
  const RouteShape shape = {7, 40, 5, 8, true};
  std::vector<float> logits = random_logits(shape, 3);
  const auto row = [&](int r) { return logits.data() + r * (shape.experts + 5); };
  std::fill_n(row(0), shape.experts, 1.0f);  // the first of equals
  for (int e = 0; e < shape.experts; ++e) row(1)[e] = e % 2 == 0 ? -0.0f : 0.0f;
  std::fill_n(row(2), shape.experts, -kInfinity);
  std::fill_n(row(3), shape.experts, std::nanf(""));
  std::fill_n(row(4), shape.experts - 3, std::nanf(""));  // numbers come before NaN
  row(5)[17] = kInfinity;
  std::fill_n(row(6) + 2, shape.experts - 2, -kInfinity);
  for (const bool normalized : {true, false}) {
    RouteShape of = shape;
    of.normalized = normalized;
    // Shares of all are shares of what is no number.
    if (!normalized) std::copy_n(row(6), shape.experts, row(4));
    expect_routed(of, logits);
  }
}

class ExpertBits : public testing::TestWithParam<MatrixKind> {
 protected:
  // Threads of an emulated device take turns in another order for each kind.
  ExpertBits() { simt::set_order(static_cast<uint64_t>(GetParam())); }
  ~ExpertBits() override { simt::set_order(0); }

  static constexpr int kExperts = 5, kUsed = 2, kInner = 1280, kOutputs = 104, kStride = 112;
};

// The device's array of matrices.
DeviceArray<uint8_t> table_of(const std::vector<Matrix>& matrices) {
  std::vector<uint8_t> bytes(matrices.size() * sizeof(Matrix));
  std::memcpy(bytes.data(), matrices.data(), bytes.size());
  return DeviceArray<uint8_t>(bytes);
}

// Of rows of 1 to many, each pair has the bits that its row has in a product with its expert's
// matrices alone.
TEST_P(ExpertBits, ArePairsOwn) {
  test::Random random(5);
  std::deque<test::Weights> gates, ups, downs;
  std::vector<Matrix> gate, up, down;
  for (int e = 0; e < kExperts; ++e) {
    gate.push_back(gates.emplace_back(random, GetParam(), kOutputs, kInner).biased());
    up.push_back(ups.emplace_back(random, GetParam(), kOutputs, kInner).matrix());
    down.push_back(downs.emplace_back(random, GetParam(), kOutputs, kInner).biased());
  }
  const DeviceArray<uint8_t> gate_table = table_of(gate), up_table = table_of(up),
                             down_table = table_of(down);
  for (const int rows : {1, 3, 21}) {
    const RouteShape shape = {rows, kExperts, kUsed, rows < 8 ? 8 : kMostExpertRows, true};
    Routed routed(shape, random_logits(shape, 7));
    routed.run(false);
    const auto pairs = static_cast<size_t>(rows * kUsed);
    const DeviceArray<uint16_t> x(random.bf16(size_t{kInner} * static_cast<size_t>(rows)));
    const DeviceArray<uint16_t> of_pairs(random.bf16(size_t{kInner} * pairs));
    const DeviceArray<float> squares(random.positive(static_cast<size_t>(rows) * 3));
    const DeviceArray<uint16_t> out(std::vector<uint16_t>(pairs * kStride));
    const DeviceArray<float> y(std::vector<float>(pairs * kStride));

    ExpertProduct gated;
    gated.product.w[0] = gate[0];
    gated.product.w[1] = up[0];
    gated.product.matrices = 2;
    gated.product.output = Output::kGated;
    gated.product.x = x.data();
    gated.product.x_stride = kInner;
    gated.product.norm = {squares.data(), 3, 3, kInner, 1e-5f};
    gated.product.out = out.data();
    gated.product.out_stride = kStride;
    gated.experts[0] = reinterpret_cast<const Matrix*>(gate_table.data());
    gated.experts[1] = reinterpret_cast<const Matrix*>(up_table.data());
    gated.expert_count = kExperts;
    gated.tiles = routed.tiles.data();
    gated.tile_count = routed.tile_count.data();
    gated.most_tiles = most_expert_tiles(rows * kUsed, kExperts, shape.tile_rows);
    gated.tile_rows = shape.tile_rows;
    gated.from = routed.rows_of_pairs.data();
    device_of_tests().expert_product(gated);
    ExpertProduct store = gated;
    store.product = {};
    store.product.w[0] = down[0];
    store.product.x = of_pairs.data();
    store.product.x_stride = kInner;
    store.product.y = y.data();
    store.product.y_stride = kStride;
    store.experts[0] = reinterpret_cast<const Matrix*>(down_table.data());
    store.from = nullptr;
    device_of_tests().expert_product(store);

    const auto chosen = routed.chosen.values(), places = routed.places.values();
    const DeviceArray<int32_t> one({1});
    const DeviceArray<uint16_t> alone((std::vector<uint16_t>(kStride)));
    const DeviceArray<float> alone_y((std::vector<float>(kStride)));
    const auto all = out.values();
    const auto all_y = y.values();
    const size_t every = test::thinned() ? 3 : 1;
    for (size_t i = test::turn_of_test() % every; i < pairs; i += every) {
      const auto expert = static_cast<size_t>(chosen[i]);
      const auto row = static_cast<int64_t>(i) / kUsed, place = int64_t{places[i]};
      Product p = gated.product;
      p.w[0] = gate[expert];
      p.w[1] = up[expert];
      p.rows = one.data();
      p.most_rows = 1;
      p.x += row * kInner;
      p.norm.squares += row * 3;
      p.out = alone.data();
      device_of_tests().product(p);
      Product q = store.product;
      q.w[0] = down[expert];
      q.rows = one.data();
      q.most_rows = 1;
      q.x += place * kInner;
      q.y = alone_y.data();
      device_of_tests().product(q);
      const auto expected = alone.values();
      const auto expected_y = alone_y.values();
      ASSERT_EQ(std::memcmp(all.data() + place * kStride, expected.data(), kOutputs * 2), 0)
          << rows << " rows, pair " << i;
      ASSERT_EQ(std::memcmp(all_y.data() + place * kStride, expected_y.data(), kOutputs * 4), 0)
          << rows << " rows, pair " << i;
      ASSERT_TRUE(std::ranges::any_of(expected_y, [](float v) { return v != 0.0f; }));
    }
  }
}

std::string name_of(const testing::TestParamInfo<MatrixKind>& info) {
  static const char* const names[] = {"bf16", "bf16x2", "q4", "q4_k", "q8", "q6_k", "fp4"};
  return names[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Kinds, ExpertBits,
                         testing::Values(MatrixKind::kBf16, MatrixKind::kBf16x2, MatrixKind::kQ4,
                                         MatrixKind::kQ4K, MatrixKind::kQ8, MatrixKind::kQ6K,
                                         MatrixKind::kFp4),
                         name_of);

// Of GPUs whose blocks have less shared memory the bits are the same; or it is known before.
TEST_P(ExpertBits, WhateverMemoryABlockHas) {
  if (!test::is_emulated()) GTEST_SKIP() << "a GPU has the memory that it has";
  test::Random random(9);
  const test::Weights weights(random, GetParam(), kOutputs, kInner);
  const DeviceArray<uint8_t> table = table_of({weights.matrix()});
  const DeviceArray<uint16_t> x(random.bf16(size_t{kInner} * 12));
  const DeviceArray<int32_t> one({1});
  const DeviceArray<ExpertTile> tile({{0, 0, 12}});
  const auto run = [&](bool is_fixed) {
    const DeviceArray<float> y(std::vector<float>(12 * kStride));
    ExpertProduct p;
    p.is_fixed = is_fixed;
    p.product.w[0] = weights.matrix();
    p.product.x = x.data();
    p.product.x_stride = kInner;
    p.product.y = y.data();
    p.product.y_stride = kStride;
    p.experts[0] = reinterpret_cast<const Matrix*>(table.data());
    p.tiles = tile.data();
    p.tile_count = one.data();
    p.most_tiles = 1;
    p.tile_rows = kMostExpertRows;
    device_of_tests().expert_product(p);
    return y.values();
  };
  const auto expected = run(false);
  EXPECT_EQ(run(true), expected) << "tiles that are known beforehand";
  for (const int64_t kibibytes : {163, 99}) {
    if (expert_memory(GetParam()) > kibibytes << 10) continue;
    simt::set_shared_memory(static_cast<size_t>(kibibytes) << 10);
    EXPECT_EQ(run(false), expected) << kibibytes << " KiB";
    simt::set_shared_memory(size_t{227} << 10);
  }
}

struct Sum {
  bool shared, gate;
};

TEST(DeviceExperts, AreAddedInTheOrderOfChoice) {
  constexpr int kRows = 3, kUsed = 4, kWidth = 272, kPairs = kRows * kUsed;
  std::mt19937 engine(2);
  std::normal_distribution<float> normal;
  const auto numbers = [&](int count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(engine);
    return values;
  };
  const std::vector<float> weights = numbers(kPairs), y = numbers(kPairs * kWidth),
                           stream = numbers(kRows * kWidth), shared = numbers(kRows * kWidth),
                           gates = numbers(kRows * 8), norm = numbers(kWidth);
  std::vector<int32_t> places(kPairs);
  std::iota(places.begin(), places.end(), 0);
  std::ranges::shuffle(places, engine);
  const DeviceArray<float> weights_at(weights), y_at(y), shared_at(shared), gates_at(gates),
      norm_at(norm);
  const DeviceArray<int32_t> places_at(places), count({kRows});
  for (const Sum& sum : {Sum{false, false}, Sum{true, false}, Sum{true, true}}) {
    const DeviceArray<float> x(stream), squares(std::vector<float>(kRows * kWidth / kPanel));
    const DeviceArray<uint16_t> next(std::vector<uint16_t>(kRows * kWidth));
    AddExperts args;
    args.rows = count.data();
    args.most_rows = kRows + 1;
    args.used = kUsed;
    args.weights = weights_at.data();
    args.places = places_at.data();
    args.y = y_at.data();
    args.y_stride = kWidth;
    if (sum.shared) args.shared = shared_at.data();
    args.shared_stride = kWidth;
    args.shared_scale = 0.5f;
    if (sum.gate) args.shared_gates = gates_at.data();
    args.gates_stride = 8;
    args.x = x.data();
    args.x_stride = kWidth;
    args.width = kWidth;
    args.next = {norm_at.data(), next.data(), kWidth, squares.data(), kWidth / kPanel};
    device_of_tests().add_experts(args);
    const auto got = x.values(), got_squares = squares.values();
    const auto got_next = next.values();
    for (int r = 0; r < kRows; ++r) {
      const double by =
          sum.gate ? 0.5 / (1.0 + std::exp(-double{gates[static_cast<size_t>(r * 8)]})) : 0.5;
      double square = 0.0;
      for (int n = 0; n < kWidth; ++n) {
        const auto at = static_cast<size_t>(r * kWidth + n);
        double expected = stream[at];
        for (int i = 0; i < kUsed; ++i) {
          const auto pair = static_cast<size_t>(r * kUsed + i);
          expected += double{weights[pair]} * y[static_cast<size_t>(places[pair] * kWidth + n)];
        }
        if (sum.shared) expected += by * double{shared[at]};
        ASSERT_NEAR(got[at], expected, 1e-5) << r << ", " << n;
        ASSERT_EQ(got_next[at], f32_to_bf16(got[at] * norm[static_cast<size_t>(n)]));
        square += double{got[at]} * got[at];
        if (n % kPanel != kPanel - 1) continue;
        ASSERT_NEAR(got_squares[static_cast<size_t>(r * (kWidth / kPanel) + n / kPanel)], square,
                    1e-4 * square);
        square = 0.0;
      }
    }
  }
}

}  // namespace aerie::device::experts_test

// A product of many rows gives the bits of products of few, however a block's panels are cut. On
// the emulated device, or on the one that AERIE_TEST_DEVICE names.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/simt/emulation.h"
#include "tests/testing/device/device_array.h"
#include "tests/testing/device/random_matrices.h"
#include "tests/testing/device/test_device.h"
#include "tests/testing/sweeps.h"

namespace aerie::device::product_test {

constexpr int kMostRows = 256;

using test::device_of_tests;

using test::Random;
using test::Weights;

template <typename T>
using Memory = test::DeviceArray<T>;

struct Results {
  std::vector<float> y, squares;
  std::vector<uint16_t> out, next;
};

class ProductBits : public testing::TestWithParam<MatrixKind> {
 protected:
  // Threads of an emulated device take turns in another order for each kind.
  ProductBits() { simt::set_order(static_cast<uint64_t>(GetParam())); }
  ~ProductBits() override { simt::set_order(0); }

  static constexpr int kInner = 1280;      // segments are of one step or two
  static constexpr int kMostInner = 3328;  // of three or four

  // All rows at once, or `few` at a time; of each the last `absent` are not there.
  Results run(Product p, int rows, int few, int tile_panels, bool with_room = true,
              int absent = 0) {
    Memory<float> y(start_), squares(std::vector<float>(start_.size()));
    Memory<uint16_t> out(std::vector<uint16_t>(start_.size()));
    Memory<uint16_t> next(std::vector<uint16_t>(start_.size()));
    const bool residual = p.output == Output::kResidual;
    p.tile_panels = tile_panels;
    Memory<uint8_t> ordered(std::vector<uint8_t>(ordered_bytes(rows, kMostInner), uint8_t{0xff}));
    if (with_room) p.ordered = ordered.data();
    for (int first = 0; first < rows; first += few) {
      const int count = std::min(few, rows - first);
      Memory<int32_t> counts({count - absent});
      Product part = p;
      part.rows = counts.data();
      part.most_rows = count;
      part.x = p.x + int64_t{first} * p.x_stride;
      part.y = y.data() + int64_t{first} * stride_;
      part.y_stride = stride_;
      part.out = out.data() + int64_t{first} * stride_;
      part.out_stride = stride_;
      if (p.norm.squares != nullptr) part.norm.squares += int64_t{first} * p.norm.stride;
      if (residual) {
        part.next.out = next.data() + int64_t{first} * stride_;
        part.next.stride = stride_;
        part.next.squares = squares.data() + int64_t{first} * stride_;
        part.next.squares_stride = stride_;
      }
      device_of_tests().product(part);
      EXPECT_TRUE(device_of_tests().wait()) << device_of_tests().error();
    }
    return {y.values(), squares.values(), out.values(), next.values()};
  }

  void compare(const Product& p, int rows) {
    const Results expected = run(p, rows, 32, 0, false);
    const auto expect_same = [&](const Results& actual, const std::string& what) {
      EXPECT_TRUE(same(actual.y, expected.y)) << what;
      EXPECT_TRUE(same(actual.squares, expected.squares)) << what;
      EXPECT_EQ(actual.out, expected.out) << what;
      EXPECT_EQ(actual.next, expected.next) << what;
    };
    // By day they take turns; each kind of matrix has all of them, in one product or another.
    const size_t turn = turn_++;
    for (const int few : test::in_turns({64, 41}, test::turn_of_test() + turn)) {
      expect_same(run(p, rows, few, 0), fmt::format("{} rows", few));
    }
    for (const int panels : test::sampled({0, -1, 1, 2, 3}, 2)) {
      if (!test::in_turn(static_cast<size_t>(panels + 1) + turn, 2)) continue;
      expect_same(run(p, rows, rows, panels), fmt::format("{} panels to a warp", panels));
    }
    // Something came of it.
    EXPECT_NE(expected.y == start_, p.output == Output::kStore || p.output == Output::kResidual);
  }

  static bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  Product product_of(const Matrix& matrix) const {
    Product p;
    p.w[0] = matrix;
    p.x = x_.data();
    p.x_stride = kInner;
    return p;
  }

  // The same for all tests, for which drawing them takes a while.
  static const std::vector<uint16_t>& rows() {
    static const auto rows = Random(4).bf16(size_t{kMostRows} * kMostInner);
    return rows;
  }

  Random random_{5};
  size_t turn_ = 0;  // of comparisons
  int stride_ = 512;
  std::vector<float> start_ = random_.numbers(size_t{kMostRows} * 512);
  Memory<uint16_t> x_{rows()};
};

TEST_P(ProductBits, OfMatricesSideBySide) {
  const Weights first(random_, GetParam(), 80, kInner), second(random_, GetParam(), 48, kInner),
      third(random_, GetParam(), 133, kInner);
  const Memory<float> squares(random_.positive(size_t{kMostRows} * 80));
  Product p = product_of(first.biased());
  p.w[1] = second.matrix(), p.w[2] = third.biased(), p.matrices = 3;
  p.norm = {squares.data(), 80, 80, kInner, 1e-5f};
  p.factor = 0.5f;
  p.soft_cap = 30.0f;
  compare(p, 140);
}

TEST_P(ProductBits, AddedToAStream) {
  const Weights weights(random_, GetParam(), 200, kInner);
  const Memory<float> norm(random_.numbers(200));
  Product p = product_of(weights.biased());
  p.output = Output::kResidual;
  p.factor = 1.5f;
  p.next.weight = norm.data();
  compare(p, 131);
}

TEST_P(ProductBits, Gated) {
  const Weights gate(random_, GetParam(), 104, kInner), up(random_, GetParam(), 104, kInner);
  const Memory<float> squares(random_.positive(size_t{kMostRows} * 3));
  Product p = product_of(gate.matrix());
  p.w[1] = up.biased(), p.matrices = 2;
  p.output = Output::kGated;
  p.norm = {squares.data(), 3, 3, kInner, 1e-5f};
  compare(p, 129);
}

TEST_P(ProductBits, Activated) {
  const Weights weights(random_, GetParam(), 136, kInner);
  Product p = product_of(weights.matrix());
  p.output = Output::kActivated;
  p.glu = Glu::kGeluTanh;
  compare(p, 65);
}

// Of segments long enough for activations to come with the codes, of an odd number of steps; and
// with so many outputs that a block has four panels at a time.
TEST_P(ProductBits, OfAFewRowsAtATime) {
  const int many = 4 * kPanel * device_of_tests().info().processors + 24;
  for (const auto& [n, k] : {std::pair{104, 9 * kSegments * kStep}, {many, kInner}}) {
    const Weights weights(random_, GetParam(), n, k);
    stride_ = std::max(n, 512);
    start_.assign(size_t{kMostRows} * static_cast<size_t>(stride_), 1.0f);
    Product p = product_of(weights.biased());
    p.x_stride = k;
    const Results expected = run(p, 13, 13, 0, false);
    for (const int few : {8, 5, 2, 1}) {
      EXPECT_TRUE(same(run(p, 13, few, 0, false).y, expected.y)) << few << " rows of " << n;
    }
    // Of sixteen rows a block's units overlap, and what is added to the stream is in other hands in
    // each.
    const Memory<float> norm(random_.numbers(static_cast<size_t>(n)));
    Product added = p;
    added.output = Output::kResidual;
    added.next.weight = norm.data();
    const Results sums = run(added, 16, 8, 0, false), of_all = run(added, 16, 16, 0, false);
    EXPECT_TRUE(same(of_all.y, sums.y)) << n;
    EXPECT_TRUE(same(of_all.squares, sums.squares)) << n;
    EXPECT_EQ(of_all.next, sums.next) << n;
  }
}

// Blocks of Ampere have 163 KiB, of its smaller GPUs and of those of Ada and the RTX 50 series 99.
TEST_P(ProductBits, WhateverMemoryABlockHas) {
  if (!test::is_emulated()) GTEST_SKIP() << "a GPU has the memory that it has";
  const Weights first(random_, GetParam(), 104, kInner), second(random_, GetParam(), 104, kInner);
  const Memory<float> norm(random_.numbers(104)), squares(random_.positive(size_t{kMostRows} * 3));
  Product added = product_of(first.biased());
  added.output = Output::kResidual;
  added.next.weight = norm.data();
  Product gated = product_of(first.matrix());
  gated.w[1] = second.biased(), gated.matrices = 2;
  gated.output = Output::kGated;
  gated.norm = {squares.data(), 3, 3, kInner, 1e-5f};
  for (const int rows : {3, 8, 16, 40, 70}) {
    for (const Product& p : {added, gated}) {
      const Results expected = run(p, rows, rows, 0);
      for (const size_t kibibytes : {163, 99}) {
        simt::set_shared_memory(kibibytes << 10);
        const Results actual = run(p, rows, rows, 0);
        EXPECT_TRUE(same(actual.y, expected.y)) << rows << " rows, " << kibibytes << " KiB";
        EXPECT_TRUE(same(actual.squares, expected.squares)) << rows << ", " << kibibytes;
        EXPECT_EQ(actual.out, expected.out) << rows << " rows, " << kibibytes << " KiB";
        EXPECT_EQ(actual.next, expected.next) << rows << " rows, " << kibibytes << " KiB";
      }
      simt::set_shared_memory(size_t{227} << 10);
    }
  }
}

// Of as many outputs that blocks of few rows have more of them.
TEST_P(ProductBits, OfManyOutputs) {
  const int n = 8 * kPanel * device_of_tests().info().processors + 40;
  const Weights weights(random_, GetParam(), n, kInner);
  stride_ = n;
  start_.assign(size_t{kMostRows} * static_cast<size_t>(n), 1.0f);
  compare(product_of(weights.matrix()), 64);
}

// Of many rows and so few outputs that blocks take 32 rows each, not all of which are there.
TEST_P(ProductBits, OfFewOutputs) {
  const Weights weights(random_, GetParam(), 64, kInner), few(random_, GetParam(), 24, kInner);
  const Memory<float> norm(random_.numbers(64)), squares(random_.positive(size_t{kMostRows} * 3));
  Product stored = product_of(weights.biased());
  stored.norm = {squares.data(), 3, 3, kInner, 1e-5f};
  for (const int rows : {65, 96, 97, 128}) compare(stored, rows);
  // A block may have no rows at all.
  const size_t there = 40 * static_cast<size_t>(stride_);
  const std::vector<float> all = run(stored, 128, 128, 0).y;
  const std::vector<float> some = run(stored, 128, 128, 0, true, 128 - 40).y;
  EXPECT_EQ(std::memcmp(some.data(), all.data(), there * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(some.data() + there, start_.data() + there,
                        (size_t{128} * static_cast<size_t>(stride_) - there) * sizeof(float)),
            0);
  Product added = product_of(weights.matrix());
  added.output = Output::kResidual;
  added.next.weight = norm.data();
  compare(added, 100);
  Product gated = product_of(few.matrix());
  gated.w[1] = few.biased(), gated.matrices = 2;
  gated.output = Output::kGated;
  compare(gated, 128);
  compare(product_of(few.matrix()), 225);
}

TEST_P(ProductBits, OfLongRows) {
  const Weights weights(random_, GetParam(), 104, kMostInner);
  Product p = product_of(weights.matrix());
  p.x_stride = kMostInner;
  compare(p, 133);
}

std::string name_of(const testing::TestParamInfo<MatrixKind>& info) {
  static const char* const names[] = {"bf16", "bf16x2", "q4", "q4_k", "q8", "q6_k", "fp4"};
  return names[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Kinds, ProductBits,
                         testing::Values(MatrixKind::kBf16, MatrixKind::kBf16x2, MatrixKind::kQ4,
                                         MatrixKind::kQ4K, MatrixKind::kQ8, MatrixKind::kQ6K,
                                         MatrixKind::kFp4),
                         name_of);

}  // namespace aerie::device::product_test

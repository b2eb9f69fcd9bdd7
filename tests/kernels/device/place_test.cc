// Queries, keys and values on their way to attention, of heads of every size that devices take:
// norms, rotary embedding and the cache, against the same in double; and the inputs of layers.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/device/cache_place.h"
#include "kernels/simt/simt.h"
#include "tests/testing/device/device_array.h"
#include "tests/testing/device/test_device.h"

namespace aerie::device::place_test {

using test::device_of_tests;
using test::DeviceArray;

constexpr double kEps = 1e-6;
constexpr int kRows = 3;

std::vector<float> normal_numbers(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return values;
}

struct Heads {
  int heads, kv_heads, head_dim;
  bool keys_are_values = false;
  bool queries_alone = false;
  int turning = 0;  // dimensions; 0: all

  int kv() const { return queries_alone ? 0 : kv_heads; }
  int width() const { return (heads + (keys_are_values ? 1 : 2) * kv()) * head_dim; }
  int dimensions() const { return turning > 0 ? turning : head_dim; }
};

class Placed {
 public:
  explicit Placed(const Heads& of)
      : of_(of),
        x_(normal_numbers(static_cast<size_t>(kRows * of.width()), 5)),
        turns_(normal_numbers(static_cast<size_t>(kRows * of.dimensions()), 6)),
        query_norm_(normal_numbers(static_cast<size_t>(of.head_dim), 7)),
        key_norm_(normal_numbers(static_cast<size_t>(of.head_dim), 8)) {
    const CacheShape shape = {of.kv(), of.head_dim};
    const DeviceArray<int32_t> counts({kRows, 0, 0, 0, 0, 0, 0});
    std::vector<PassRow> rows;
    for (int r = 0; r < kRows; ++r) rows.push_back({r, slot(r)});
    const DeviceArray<PassRow> pass_rows(rows);
    const DeviceArray<float> x(x_), turns(turns_), query_norm(query_norm_), key_norm(key_norm_);
    const auto kept = static_cast<size_t>(head_offset(shape, 2 * kPage, 0));
    const DeviceArray<uint16_t> plane(std::vector<uint16_t>(kept + 1));
    const DeviceArray<uint16_t> q(
        std::vector<uint16_t>(static_cast<size_t>(kRows * of.heads * of.head_dim)));
    Place args;
    args.pass.counts = counts.data();
    args.pass.rows = pass_rows.data();
    args.most_rows = kRows + 1;  // more is launched than there is
    args.qkv = x.data();
    args.stride = of.width();
    args.heads = of.heads;
    args.shape = shape;
    args.values_apart = of.keys_are_values ? 0 : of.kv() * of.head_dim;
    args.query_norm = query_norm.data();
    args.key_norm = key_norm.data();
    args.value_norm = true;
    args.eps = static_cast<float>(kEps);
    args.turns = turns.data();
    args.turns_stride = of.dimensions();
    args.dimensions = of.dimensions();
    args.q = q.data();
    args.plane = of.queries_alone ? nullptr : plane.data();
    device_of_tests().place(args);
    q_ = q.values();
    plane_ = plane.values();
  }

  static int slot(int row) { return 60 + 3 * row; }  // of two pages

  double query(int row, int head, int d) const {
    return simt::from_f16(q_[static_cast<size_t>((row * of_.heads + head) * of_.head_dim + d)]);
  }
  double key(int row, int head, int d) const {
    const CacheShape shape = {of_.kv(), of_.head_dim};
    return simt::from_f16(plane_[static_cast<size_t>(head_offset(shape, slot(row), head) +
                                                     key_element(shape, slot(row), d))]);
  }
  double value(int row, int head, int d) const {
    const CacheShape shape = {of_.kv(), of_.head_dim};
    return simt::from_f16(plane_[static_cast<size_t>(head_offset(shape, slot(row), head) +
                                                     value_element(shape, slot(row), d))]);
  }

  // Of one head among all of a row: normed, with these weights if there are some.
  std::vector<double> normed(int row, int head, const std::vector<float>* weight) const {
    const int dim = of_.head_dim;
    const float* x = x_.data() + row * of_.width() + head * dim;
    double sum = 0.0;
    for (int d = 0; d < dim; ++d) sum += double{x[d]} * x[d];
    std::vector<double> out;
    for (int d = 0; d < dim; ++d) {
      out.push_back(x[d] / std::sqrt(sum / dim + kEps));
      if (weight != nullptr) out.back() *= (*weight)[static_cast<size_t>(d)];
    }
    return out;
  }
  std::vector<double> turned(int row, std::vector<double> x) const {
    const int pairs = of_.dimensions() / 2;
    const float* by = turns_.data() + row * of_.dimensions();
    for (int p = 0; p < pairs; ++p) {
      double &u = x[static_cast<size_t>(p)], &v = x[static_cast<size_t>(p + pairs)];
      const double first = u * by[p] - v * by[pairs + p];
      v = u * by[pairs + p] + v * by[p];
      u = first;
    }
    return x;
  }
  std::vector<double> expected_query(int row, int head) const {
    return turned(row, normed(row, head, &query_norm_));
  }
  std::vector<double> expected_key(int row, int head) const {
    return turned(row, normed(row, of_.heads + head, &key_norm_));
  }
  std::vector<double> expected_value(int row, int head) const {
    return normed(row, of_.heads + head + (of_.keys_are_values ? 0 : of_.kv_heads), nullptr);
  }

 private:
  Heads of_;
  std::vector<float> x_, turns_, query_norm_, key_norm_;
  std::vector<uint16_t> q_, plane_;
};

class DevicePlace : public testing::TestWithParam<Heads> {};

// binary16's rounding.
void expect_near(double actual, double expected, const std::string& what) {
  EXPECT_NEAR(actual, expected, 2e-3 * std::max(1.0, std::abs(expected))) << what;
}

TEST_P(DevicePlace, NormsTurnsAndKeeps) {
  const Heads& of = GetParam();
  const Placed placed(of);
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < of.heads; ++head) {
      const std::vector<double> query = placed.expected_query(row, head);
      for (int d = 0; d < of.head_dim; ++d) {
        expect_near(placed.query(row, head, d), query[static_cast<size_t>(d)], "query");
      }
    }
    for (int head = 0; head < of.kv(); ++head) {
      const std::vector<double> key = placed.expected_key(row, head);
      const std::vector<double> value = placed.expected_value(row, head);
      for (int d = 0; d < of.head_dim; ++d) {
        expect_near(placed.key(row, head, d), key[static_cast<size_t>(d)], "key");
        expect_near(placed.value(row, head, d), value[static_cast<size_t>(d)], "value");
      }
    }
  }
}

std::string heads_name(const testing::TestParamInfo<Heads>& info) {
  const Heads& of = info.param;
  return std::to_string(of.heads) + "x" + std::to_string(of.kv_heads) + "x" +
         std::to_string(of.head_dim) + (of.keys_are_values ? "_keys_are_values" : "") +
         (of.queries_alone ? "_queries_alone" : "");
}

INSTANTIATE_TEST_SUITE_P(Heads, DevicePlace,
                         testing::Values(Heads{3, 1, 48}, Heads{4, 2, 128, true},
                                         Heads{5, 2, 256, false, false, 64}, Heads{8, 2, 512},
                                         Heads{4, 1, 512, true, false, 128},
                                         Heads{9, 1, 512, false, true}),
                         heads_name);

TEST(DeviceLayerInputs, AreNormedByPartsAndAddedUp) {
  constexpr int kParts = 9, kWidth = 48, kAll = kParts * kWidth;
  const std::vector<float> x = normal_numbers(kRows * kAll, 1),
                           added = normal_numbers(kRows * kAll, 2),
                           weight = normal_numbers(kWidth, 3);
  const DeviceArray<int32_t> count({kRows});
  const DeviceArray<float> to(x), more(added), by(weight);
  JoinInputs args;
  args.rows = count.data();
  args.most_rows = kRows + 1;
  args.x = to.data();
  args.x_stride = args.added_stride = kAll;
  args.parts = kParts;
  args.width = kWidth;
  args.weight = by.data();
  args.eps = static_cast<float>(kEps);
  args.added = more.data();
  args.added_scale = 4.0f;
  args.factor = 0.5f;
  device_of_tests().join_inputs(args);
  const std::vector<float> out = to.values();
  for (size_t part = 0; part < kRows * kParts; ++part) {
    double sum = 0.0;
    for (size_t d = 0; d < kWidth; ++d) sum += double{x[part * kWidth + d]} * x[part * kWidth + d];
    const double inverse = 1.0 / std::sqrt(sum / kWidth + kEps);
    for (size_t d = 0; d < kWidth; ++d) {
      const size_t i = part * kWidth + d;
      EXPECT_NEAR(out[i], 0.5 * (x[i] * inverse * weight[d] + 4.0 * added[i]), 1e-5) << i;
    }
  }
}

TEST(DeviceLayerInputs, AreGates) {
  constexpr int kWidth = 300, kStride = 320;
  const std::vector<float> x = normal_numbers(kRows * kStride, 1),
                           by = normal_numbers(kRows * kStride, 2);
  const DeviceArray<int32_t> count({kRows});
  const DeviceArray<float> from(x), times(by);
  const DeviceArray<uint16_t> to(std::vector<uint16_t>(kRows * kStride, 7));
  GateRows args;
  args.rows = count.data();
  args.most_rows = kRows + 1;
  args.x = from.data();
  args.by = times.data();
  args.x_stride = args.by_stride = args.out_stride = kStride;
  args.width = kWidth;
  args.out = to.data();
  device_of_tests().gate_rows(args);
  const std::vector<uint16_t> out = to.values();
  for (size_t i = 0; i < out.size(); ++i) {
    if (i % kStride >= kWidth) {
      EXPECT_EQ(out[i], 7) << i;
      continue;
    }
    const double expected = x[i] / (1.0 + std::exp(-double{x[i]})) * by[i];
    EXPECT_NEAR(simt::from_bf16(out[i]), expected, 0.004 * std::abs(expected) + 1e-6) << i;
  }
}

// A row of random numbers, several experts of it among those of other rows.
TEST(DeviceLayerInputs, ExpertsBesideAreNormedTwice) {
  constexpr int kWidth = 300, kUsed = 2, kPairs = kRows * kUsed,
                kPanels = (kWidth + kPanel - 1) / kPanel;
  const std::vector<float> y = normal_numbers(kPairs * kWidth, 1),
                           beside = normal_numbers(kRows * kWidth, 2),
                           x = normal_numbers(kRows * kWidth, 3),
                           norms = normal_numbers(4 * kWidth, 4),
                           weights = {0.5f, 0.25f, 1.0f, 0.125f, 0.75f, 0.0f};
  const std::vector<int32_t> places = {5, 0, 3, 1, 4, 2};
  const DeviceArray<int32_t> count({kRows}), at(places);
  const DeviceArray<float> given(y), other(beside), stream(x), norm(norms), shares(weights),
      squares(std::vector<float>(kRows * kPanels));
  const DeviceArray<uint16_t> next(std::vector<uint16_t>(kRows * kWidth));
  AddBeside args;
  args.rows = count.data();
  args.most_rows = kRows + 1;
  args.used = kUsed;
  args.weights = shares.data();
  args.places = at.data();
  args.y = given.data();
  args.beside = other.data();
  args.x = stream.data();
  args.y_stride = args.beside_stride = args.x_stride = args.width = kWidth;
  args.beside_norm = norm.data();
  args.expert_norm = norm.data() + kWidth;
  args.norm = norm.data() + 2 * kWidth;
  args.eps = static_cast<float>(kEps);
  args.scale = 0.75f;
  args.next = {norm.data() + 3 * kWidth, next.data(), kWidth, squares.data(), kPanels};
  device_of_tests().add_beside(args);
  const std::vector<float> out = stream.values();
  const std::vector<uint16_t> rounded = next.values();
  const auto normed = [&](std::vector<double> v, size_t which) {
    double sum = 0.0;
    for (const double one : v) sum += one * one;
    for (size_t n = 0; n < v.size(); ++n) {
      v[n] *= norms[which * kWidth + n] / std::sqrt(sum / kWidth + kEps);
    }
    return v;
  };
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<double> of_experts(kWidth), both(kWidth);
    for (size_t n = 0; n < kWidth; ++n) {
      for (size_t i = row * kUsed; i < (row + 1) * kUsed; ++i) {
        of_experts[n] += double{weights[i]} * y[static_cast<size_t>(places[i]) * kWidth + n];
      }
      both[n] = beside[row * kWidth + n];
    }
    both = normed(both, 0);
    of_experts = normed(of_experts, 1);
    for (size_t n = 0; n < kWidth; ++n) both[n] += of_experts[n];
    both = normed(both, 2);
    for (size_t n = 0; n < kWidth; ++n) {
      const size_t i = row * kWidth + n;
      const double expected = 0.75 * (x[i] + both[n]);
      EXPECT_NEAR(out[i], expected, 1e-4) << i;
      EXPECT_NEAR(simt::from_bf16(rounded[i]), out[i] * norms[3 * kWidth + n],
                  0.004 * std::abs(out[i] * norms[3 * kWidth + n]) + 1e-6);
    }
  }
}

}  // namespace aerie::device::place_test

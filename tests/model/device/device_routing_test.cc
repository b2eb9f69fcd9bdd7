// A device chooses and weighs experts as the processor does (model/expert_routing.h), whatever the
// router is; and a row's choice is its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/simt/emulation.h"
#include "model/expert_routing.h"
#include "tests/testing/device/device_array.h"
#include "tests/testing/device/test_device.h"

namespace aerie::device_routing_test {

using test::DeviceArray;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Routing {
  int experts, used;
  ExpertRouter router;
};

ExpertRouter softmax_of_groups(int groups, int used) {
  return {.scale = 16.0, .groups = groups, .used_groups = used};
}
ExpertRouter sigmoid(bool normalized) {
  return {.score = ExpertRouter::Score::kSigmoid, .normalized = normalized, .scale = 1.8};
}
ExpertRouter corrected() {
  ExpertRouter router = sigmoid(true);
  router.corrected = true;
  return router;
}
ExpertRouter sigmoid_of_groups(int groups, int used) {
  ExpertRouter router = corrected();
  router.groups = groups;
  router.used_groups = used;
  router.by_best_two = true;
  return router;
}

// What published models have, and the ends of what a router may be.
std::vector<Routing> routings() {
  ExpertRouter shares = softmax_of_groups(4, 2);
  shares.normalized = true;
  ExpertRouter by_best = sigmoid_of_groups(10, 3);
  by_best.by_best_two = false;
  return {{256, 8, sigmoid_of_groups(8, 4)},
          {64, 4, corrected()},
          {160, 6, softmax_of_groups(8, 3)},
          {32, 4, sigmoid(false)},
          {33, 5, sigmoid(true)},
          {24, 3, shares},
          {90, 7, by_best},
          {64, 3, sigmoid_of_groups(64, 5)},
          {512, 32, sigmoid_of_groups(4, 4)},
          {512, 9, sigmoid_of_groups(64, 2)},
          {1, 1, corrected()}};
}

struct Chosen {
  std::vector<int32_t> experts;  // [row][used]
  std::vector<float> weights;

  bool operator==(const Chosen& other) const {
    return experts == other.experts &&
           std::memcmp(weights.data(), other.weights.data(), weights.size() * sizeof(float)) == 0;
  }
};

std::vector<float> numbers(uint32_t seed, int count, float deviation) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine);
  return values;
}

std::vector<float> corrections_of(const Routing& routing) {
  if (!routing.router.corrected) return {};
  return numbers(99, routing.experts, 0.2f);
}

Chosen on_processor(const Routing& routing, const std::vector<float>& logits,
                    const std::vector<float>& corrections) {
  const auto experts = static_cast<size_t>(routing.experts);
  const auto used = static_cast<size_t>(routing.used), rows = logits.size() / experts;
  Chosen out = {std::vector<int32_t>(rows * used), std::vector<float>(rows * used)};
  for (size_t r = 0; r < rows; ++r) {
    choose_experts({logits.data() + r * experts, experts}, routing.router,
                   corrections.empty() ? nullptr : corrections.data(), routing.used,
                   out.experts.data() + r * used, out.weights.data() + r * used);
  }
  return out;
}

Chosen on_device(const Routing& routing, const std::vector<float>& logits,
                 const std::vector<float>& corrections) {
  const int rows = static_cast<int>(logits.size()) / routing.experts, pairs = rows * routing.used;
  const auto size = static_cast<size_t>(pairs);
  const DeviceArray<float> logits_at(logits), weights(std::vector<float>(size, NAN)),
      corrections_at(corrections.empty() ? std::vector<float>(1) : corrections);
  const DeviceArray<int32_t> chosen(std::vector<int32_t>(size, -1)),
      places((std::vector<int32_t>(size))), of_pairs((std::vector<int32_t>(size))), count({rows}),
      tile_count({0}), used_experts({0});
  const DeviceArray<device::ExpertTile> tiles(std::vector<device::ExpertTile>(
      static_cast<size_t>(device::most_expert_tiles(pairs, routing.experts, 8))));
  const DeviceArray<unsigned> arrived({0});
  const ExpertRouter& router = routing.router;
  device::Route args;
  args.rows = count.data();
  args.most_rows = rows;
  args.logits = logits_at.data();
  args.stride = routing.experts;
  args.experts = routing.experts;
  args.used = routing.used;
  args.sigmoid = router.score == ExpertRouter::Score::kSigmoid;
  if (!corrections.empty()) args.corrections = corrections_at.data();
  args.groups = router.groups;
  args.used_groups = router.used_groups;
  args.by_best_two = router.by_best_two;
  args.normalized = router.normalized;
  args.scale = static_cast<float>(router.scale);
  args.tile_rows = 8;
  args.weights = weights.data();
  args.chosen = chosen.data();
  args.places = places.data();
  args.pairs = of_pairs.data();
  args.tiles = tiles.data();
  args.tile_count = tile_count.data();
  args.used_experts = used_experts.data();
  args.arrived = arrived.data();
  test::device_of_tests().route(args);
  return {chosen.values(), weights.values()};
}

// Pairs of a row and an expert in which they differ.
int differences(const Chosen& actual, const Chosen& expected) {
  int count = 0;
  for (size_t i = 0; i < expected.experts.size(); ++i) {
    const double weight = expected.weights[i], error = std::abs(actual.weights[i] - weight);
    const bool same = actual.experts[i] == expected.experts[i] &&
                      (std::isnan(weight) ? std::isnan(actual.weights[i])
                                          : error <= 3e-6 * std::max(1.0, std::abs(weight)));
    if (!same) ++count;
  }
  return count;
}

std::string said(const Routing& routing) {
  const ExpertRouter& r = routing.router;
  return std::to_string(routing.used) + " of " + std::to_string(routing.experts) + ", " +
         std::to_string(r.used_groups) + " of " + std::to_string(r.groups) + " groups" +
         (r.score == ExpertRouter::Score::kSigmoid ? ", sigmoid" : ", softmax") +
         (r.normalized ? ", normalized" : "") + (r.corrected ? ", corrected" : "");
}

TEST(DeviceRouting, IsTheProcessors) {
  for (const Routing& routing : routings()) {
    SCOPED_TRACE(said(routing));
    const std::vector<float> logits = numbers(7, 21 * routing.experts, 1.5f),
                             corrections = corrections_of(routing);
    EXPECT_EQ(differences(on_device(routing, logits, corrections),
                          on_processor(routing, logits, corrections)),
              0);
  }
}

// A router that is a little different is found out by that comparison, so that no part of one goes
// unseen.
TEST(DeviceRouting, IsOfEveryPartOfTheRouter) {
  const Routing right = {64, 6, sigmoid_of_groups(8, 3)};
  const std::vector<float> logits = numbers(3, 24 * right.experts, 1.5f),
                           corrections = corrections_of(right);
  const Chosen expected = on_processor(right, logits, corrections);
  ASSERT_EQ(differences(on_device(right, logits, corrections), expected), 0);
  const auto with = [&](auto change) {
    Routing other = right;
    change(other.router);
    return differences(on_device(other, logits, corrections), expected);
  };
  EXPECT_GT(with([](ExpertRouter& r) { r.groups = r.used_groups = 1; }), 0);
  EXPECT_GT(with([](ExpertRouter& r) { r.used_groups = 4; }), 0);
  EXPECT_GT(with([](ExpertRouter& r) { r.by_best_two = false; }), 0);
  EXPECT_GT(with([](ExpertRouter& r) { r.normalized = false; }), 0);
  EXPECT_GT(with([](ExpertRouter& r) { r.scale = 1.81; }), 0);
  EXPECT_GT(with([](ExpertRouter& r) { r.score = ExpertRouter::Score::kSoftmax; }), 0);
  EXPECT_GT(differences(on_device(right, logits, {}), expected), 0);
  // Corrections are no part of what is weighed: others in the same order change nothing, and
  // weights are not of them.
  std::vector<float> moved = corrections;
  for (float& value : moved) value += 4.0f;
  const Chosen same = on_device(right, logits, moved);
  EXPECT_EQ(differences(same, expected), 0);
}

// Of equals the first, in groups and among groups.
TEST(DeviceRouting, OfEqualsTheFirst) {
  for (Routing routing : routings()) {
    SCOPED_TRACE(said(routing));
    std::vector<float> logits = numbers(5, 9 * routing.experts, 1.0f);
    for (float& logit : logits) logit = logit > 0.5f ? 1.0f : 0.0f;
    std::fill_n(logits.begin(), routing.experts, 0.5f);
    EXPECT_EQ(differences(on_device(routing, logits, {}), on_processor(routing, logits, {})), 0);
  }
}

// What is no number, or too large for a share, is weighed as on the processor; and large logits
// outside of the groups that are used do not hide those within.
TEST(DeviceRouting, WhateverTheLogitsAre) {
  const Routing plain = {40, 5, sigmoid(true)}, groups = {40, 4, softmax_of_groups(4, 1)};
  std::vector<float> logits(static_cast<size_t>(plain.experts) * 4);
  const auto row = [&](int r) { return logits.begin() + r * plain.experts; };
  std::fill_n(row(0), plain.experts, -kInfinity);  // sigmoids of 0
  std::fill_n(row(1), plain.experts, kInfinity);
  std::fill_n(row(2), plain.experts, std::nanf(""));
  std::fill_n(row(3), plain.experts, -200.0f);
  EXPECT_EQ(differences(on_device(plain, logits, {}), on_processor(plain, logits, {})), 0);
  // Nothing is known of which of equals is first where all are no numbers.
  std::fill_n(row(2), plain.experts, 90.0f);
  std::fill_n(row(3), plain.experts, -90.0f);
  *(row(3) + 17) = 90.0f;
  EXPECT_EQ(differences(on_device(groups, logits, {}), on_processor(groups, logits, {})), 0);
}

// A row's experts and weights have the bits that they have alone.
TEST(DeviceRouting, IsARowsOwn) {
  for (const Routing& routing : routings()) {
    SCOPED_TRACE(said(routing));
    const int rows = 37;
    const std::vector<float> logits = numbers(11, rows * routing.experts, 1.5f),
                             corrections = corrections_of(routing);
    const Chosen all = on_device(routing, logits, corrections);
    simt::set_order(3);
    EXPECT_TRUE(on_device(routing, logits, corrections) == all) << "threads in another order";
    simt::set_order(0);
    for (const int r : {0, 16, 36}) {
      const auto first = logits.begin() + r * routing.experts;
      const Chosen alone = on_device(routing, {first, first + routing.experts}, corrections);
      const Chosen own = {
          {all.experts.begin() + r * routing.used, all.experts.begin() + (r + 1) * routing.used},
          {all.weights.begin() + r * routing.used, all.weights.begin() + (r + 1) * routing.used}};
      EXPECT_TRUE(alone == own) << "row " << r;
    }
  }
}

}  // namespace aerie::device_routing_test

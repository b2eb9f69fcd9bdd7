// Keys and values into the cache and about it: where they lie, how they are rounded, what is left
// alone.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/kernels/attention/attention_testing.h"
#include "tests/testing/kv_bytes.h"

namespace aerie::kernels::kv_layout_test {

using test::bytes_of_slot;

constexpr std::byte kUntouched{0x5A};
constexpr int kPages = 4;

std::vector<KvLayout> all_layouts() {
  std::vector<KvLayout> layouts;
  for (const KvType type : kAllKvTypes) {
    for (const auto& [kv_heads, head_dim] :
         {std::pair{1, 16}, {3, 64}, {2, 80}, {1, 256}, {8, 128}}) {
      layouts.push_back({kv_heads, head_dim, type});
    }
    for (const auto& [head_dim, prefix] : {std::pair{576, 512}, {48, 32}}) {
      layouts.push_back({prefix == 32 ? 2 : 1, head_dim, type, prefix});
    }
  }
  return layouts;
}

TEST(KvLayoutTest, EveryByteBelongsToOneSlot) {
  for (const KvLayout& layout : all_layouts()) {
    std::vector<int> used(static_cast<size_t>(kPages * layout.page()));
    for (int32_t slot = 0; slot < kPages * kPagePositions; ++slot) {
      for (const int64_t at : bytes_of_slot(layout, slot)) ++used.at(static_cast<size_t>(at));
    }
    EXPECT_TRUE(std::ranges::all_of(used, [](int n) { return n == 1; }));
  }
}

TEST(KvLayoutTest, CodesTakeHalfTheMemory) {
  const KvLayout halves = {3, 64}, codes = {3, 64, KvType::kQ8};
  EXPECT_EQ(halves.page(), 3 * 64 * 2 * 64 * 2);
  EXPECT_EQ(codes.page(), 3 * 64 * 2 * (64 + 4));
}

TEST(KvLayoutTest, BeginningsOfKeysTakeNoMemory) {
  const KvLayout halves = {1, 576, KvType::kF16, 512}, codes = {1, 576, KvType::kQ8, 512};
  EXPECT_EQ(halves.page(), 64 * 576 * 2);
  EXPECT_EQ(codes.page(), 64 * (576 + 2 * 4));
}

// A plane of kPages pages.
class Plane {
 public:
  explicit Plane(const KvLayout& layout) : data_(kPages * layout.page()) {
    std::ranges::fill(data_.span(), kUntouched);
  }
  std::byte* data() { return data_.data(); }
  std::span<std::byte> span() { return data_.span(); }
  std::vector<std::byte> contents() { return {data_.span().begin(), data_.span().end()}; }

 private:
  Fenced<std::byte> data_;
};

std::vector<int32_t> shuffled_slots(Random& random) {
  std::vector<int32_t> slots(kPages * kPagePositions);
  std::iota(slots.begin(), slots.end(), 0);
  random.shuffle(slots);
  return slots;
}

// Of every size, with numbers that f16 does not have, ties between those it has, and what is none.
std::vector<float> hard_values(Random& random, int64_t count) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float odd[] = {0.0f,   -0.0f,       65504.0f,      65519.996f,   65520.0f,    -1e30f,
                       kInf,   -kInf,       std::nanf(""), 0x1p-24f,     0x1p-25f,    0x1.8p-24f,
                       1e-40f, 0x1.002p+0f, 0x1.006p+0f,   0x1.0021p+0f, 0x1.FFEp-15f};
  std::vector<float> values = uniform_floats(random, count, -1.0f, 1.0f);
  for (float& x : values) {
    x = std::ldexp(x, static_cast<int>(random.below(44)) - 26);
    if (random.below(8) == 0) x = odd[random.index(std::size(odd))];
  }
  return values;
}

class StoreKvTest : public BackendTest<std::tuple<Isa, KvType>> {
 protected:
  KvType type() const { return std::get<1>(GetParam()); }
  // Where a row's key or value of one head is kept: its page, from the plane's start, and what
  // place its elements have there.
  struct Half {
    int64_t at;
    std::vector<int64_t> places;
  };
  // Of a key: what has a scale of its own.
  static Half key_of(const KvLayout& layout, int32_t slot, int h) {
    Half half = {layout.keys(slot / kPagePositions, h), {}};
    for (int d = layout.value_prefix; d < layout.head_dim; ++d) {
      half.places.push_back(layout.key_element(slot % kPagePositions, d));
    }
    return half;
  }
  static Half value_of(const KvLayout& layout, int32_t slot, int h) {
    Half half = {layout.values(slot / kPagePositions, h), {}};
    for (int d = 0; d < layout.value_dim(); ++d) {
      half.places.push_back(layout.value_element(slot % kPagePositions, d));
    }
    return half;
  }

  static void expect_halves(const std::byte* plane, const Half& half, const float* x) {
    for (size_t d = 0; d < half.places.size(); ++d) {
      uint16_t stored = 0;
      std::memcpy(&stored, plane + half.at + 2 * half.places[d], 2);
      ASSERT_EQ(stored, f32_to_f16(x[d])) << x[d];
    }
  }
  static void expect_codes(const KvLayout& layout, const std::byte* plane, const Half& half,
                           int32_t slot, const float* x, int scale_of) {
    std::vector<int8_t> codes(half.places.size());
    const float expected = quantize_kv(x, static_cast<int>(codes.size()), codes.data());
    float scale = 0.0f;
    std::memcpy(&scale, plane + half.at + layout.scale_at(slot % kPagePositions, scale_of), 4);
    ASSERT_TRUE(same_bits(scale, expected)) << scale << " instead of " << expected;
    for (size_t d = 0; d < half.places.size(); ++d) {
      ASSERT_EQ(static_cast<int8_t>(plane[half.at + half.places[d]]), codes[d]) << x[d];
    }
  }
  void expect_half(const KvLayout& layout, const std::byte* plane, const Half& half, int32_t slot,
                   const float* x, int scale_of) const {
    if (type() == KvType::kF16) return expect_halves(plane, half, x);
    expect_codes(layout, plane, half, slot, x, scale_of);
  }
};

TEST_P(StoreKvTest, RoundsToTheTypeAndTouchesNothingElse) {
  Random random(80);
  int many = 1;
  for (const KvLayout& layout : all_layouts()) {
    if (layout.type != type()) continue;
    const int64_t width = int64_t{layout.kv_heads} * layout.head_dim;
    std::vector<int32_t> slots = shuffled_slots(random);
    const auto rows = static_cast<size_t>(many);
    many += 9;
    const std::vector<int32_t> rest(slots.begin() + static_cast<ptrdiff_t>(rows), slots.end());
    slots.resize(rows);
    // Of some rows every element is ordinary: codes of others are often zeros.
    std::vector<float> numbers[2];
    for (std::vector<float>& list : numbers) {
      list = hard_values(random, static_cast<int64_t>(rows) * width);
      for (size_t r = 0; r < rows; r += 2) {
        const std::vector<float> plain = uniform_floats(random, width, -3.0f, 3.0f);
        std::ranges::copy(plain, list.begin() + static_cast<ptrdiff_t>(r) * width);
      }
    }
    const Fenced<float> k(numbers[0]), v(numbers[1]);
    Plane plane(layout);
    backend().store_kv(pool_of(3), layout, k.data(), v.data(), slots, plane.data());
    for (size_t r = 0; r < rows; ++r) {
      for (int h = 0; h < layout.kv_heads; ++h) {
        const int64_t at = static_cast<int64_t>(r) * width + int64_t{h} * layout.head_dim;
        const int prefix = layout.value_prefix;
        expect_half(layout, plane.data(), key_of(layout, slots[r], h), slots[r],
                    k.data() + at + prefix, prefix);
        expect_half(layout, plane.data(), value_of(layout, slots[r], h), slots[r],
                    (prefix > 0 ? k : v).data() + at, 0);
        if (HasFatalFailure()) return;
      }
    }
    for (const int32_t slot : rest) {
      for (const int64_t at : bytes_of_slot(layout, slot)) {
        ASSERT_EQ(plane.data()[at], kUntouched);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoreKvTest,
                         testing::Combine(testing::ValuesIn(kAllIsas),
                                          testing::ValuesIn(kAllKvTypes)),
                         isa_type_test_name);

TEST(QuantizeKvTest, RoundsToTheNearestCode) {
  Random random(83);
  for (int round = 0; round < 200; ++round) {
    const int head_dim = 16 * (1 + static_cast<int>(random.below(16)));
    std::vector<float> x = uniform_floats(random, head_dim, -1.0f, 1.0f);
    for (float& value : x) value = std::ldexp(value, round - 100);
    std::vector<int8_t> codes(x.size());
    const float scale = quantize_kv(x.data(), head_dim, codes.data());
    int largest = 0;
    for (size_t d = 0; d < x.size(); ++d) {
      ASSERT_NEAR(x[d], scale * static_cast<float>(codes[d]), 0.5001f * scale);
      largest = std::max(largest, std::abs(int{codes[d]}));
    }
    ASSERT_EQ(largest, 127);
  }
}

TEST(QuantizeKvTest, WhatHasNoCodes) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float odd : {kInf, -kInf, std::nanf("")}) {
    std::vector<float> x(16, 1.0f);
    x[7] = odd;
    std::vector<int8_t> codes(16, 1);
    EXPECT_TRUE(std::isnan(quantize_kv(x.data(), 16, codes.data())));
    EXPECT_EQ(codes, std::vector<int8_t>(16, 0));
  }
  for (const float little : {0.0f, -0.0f, 1e-36f, -1e-45f}) {
    const std::vector<float> x(16, little);
    std::vector<int8_t> codes(16, 1);
    EXPECT_EQ(quantize_kv(x.data(), 16, codes.data()), 0.0f);
    EXPECT_EQ(codes, std::vector<int8_t>(16, 0));
  }
}

void fill_at_random(Plane& plane, Random& random) {
  for (std::byte& byte : plane.span()) byte = static_cast<std::byte>(random.next());
}

TEST(CopyKvTest, CopiesOneSlotAndNothingElse) {
  Random random(81);
  for (const KvLayout& layout : all_layouts()) {
    Plane plane(layout);
    fill_at_random(plane, random);
    for (int round = 0; round < 40; ++round) {
      const auto from = static_cast<int32_t>(random.below(kPages * kPagePositions));
      // Within a page, within a tile, and far away.
      const auto to = static_cast<int32_t>(
          round % 3 == 0   ? random.below(kPages * kPagePositions)
          : round % 3 == 1 ? from / kPagePositions * kPagePositions + random.below(kPagePositions)
                           : from / kKeyTile * kKeyTile + random.below(kKeyTile));
      std::vector<std::byte> expected = plane.contents();
      const std::vector<int64_t> source = bytes_of_slot(layout, from);
      const std::vector<int64_t> target = bytes_of_slot(layout, to);
      for (size_t i = 0; i < source.size(); ++i) {
        expected[static_cast<size_t>(target[i])] = plane.data()[source[i]];
      }
      copy_kv(layout, plane.data(), from, to);
      ASSERT_EQ(plane.contents(), expected) << from << " to " << to;
    }
  }
}

TEST(CopyKvTest, ToItselfIsNothing) {
  Random random(82);
  for (const KvType type : kAllKvTypes) {
    const KvLayout layout = {3, 64, type};
    Plane plane(layout);
    fill_at_random(plane, random);
    const std::vector<std::byte> before = plane.contents();
    copy_kv(layout, plane.data(), 77, 77);
    EXPECT_EQ(plane.contents(), before);
  }
}

}  // namespace aerie::kernels::kv_layout_test

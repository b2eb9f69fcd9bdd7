// Keys and values into the cache and about it: where they lie, how they are rounded, what is left
// alone.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/kernel_testing.h"

namespace aerie::kernels {
namespace {

constexpr uint16_t kUntouched = 0x5A5A;
constexpr int kPages = 4;

KvLayout layouts(int i) {
  constexpr KvLayout kLayouts[] = {{1, 16}, {3, 64}, {2, 80}, {1, 256}, {8, 128}};
  return kLayouts[i];
}
constexpr int kLayoutCount = 5;

TEST(KvLayoutTest, EveryElementHasAPlaceOfItsOwn) {
  for (int i = 0; i < kLayoutCount; ++i) {
    const KvLayout layout = layouts(i);
    std::vector<int> used(static_cast<size_t>(kPages * layout.page()));
    for (int page = 0; page < kPages; ++page) {
      for (int h = 0; h < layout.kv_heads; ++h) {
        for (int offset = 0; offset < kPagePositions; ++offset) {
          for (int d = 0; d < layout.head_dim; ++d) {
            ++used.at(static_cast<size_t>(layout.keys(page, h) + layout.key_element(offset, d)));
            ++used.at(static_cast<size_t>(layout.values(page, h) +
                                          int64_t{offset} * layout.head_dim + d));
          }
        }
      }
    }
    EXPECT_TRUE(std::ranges::all_of(used, [](int n) { return n == 1; }));
  }
}

// A plane of kPages pages, element by element.
class Plane {
 public:
  explicit Plane(const KvLayout& layout) : layout_(layout), data_(kPages * layout.page()) {
    std::ranges::fill(data_.span(), kUntouched);
  }
  uint16_t* data() { return data_.data(); }
  std::vector<uint16_t> contents() { return {data_.span().begin(), data_.span().end()}; }
  uint16_t& key(int32_t slot, int h, int d) {
    return data_[layout_.keys(slot / kPagePositions, h) +
                 layout_.key_element(slot % kPagePositions, d)];
  }
  uint16_t& value(int32_t slot, int h, int d) {
    return data_[layout_.values(slot / kPagePositions, h) +
                 int64_t{slot % kPagePositions} * layout_.head_dim + d];
  }

 private:
  KvLayout layout_;
  Fenced<uint16_t> data_;
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

using StoreKvTest = IsaTest;

TEST_P(StoreKvTest, RoundsLikeF32ToF16AndTouchesNothingElse) {
  Random random(80);
  for (int i = 0; i < kLayoutCount; ++i) {
    const KvLayout layout = layouts(i);
    const int64_t width = int64_t{layout.kv_heads} * layout.head_dim;
    std::vector<int32_t> slots = shuffled_slots(random);
    const auto rows = static_cast<size_t>(1 + 9 * i);
    const std::vector<int32_t> rest(slots.begin() + static_cast<ptrdiff_t>(rows), slots.end());
    slots.resize(rows);
    const Fenced<float> k(hard_values(random, static_cast<int64_t>(rows) * width));
    const Fenced<float> v(hard_values(random, static_cast<int64_t>(rows) * width));
    Plane plane(layout);
    backend().store_kv(pool_of(3), layout, k.data(), v.data(), slots, plane.data());
    for (size_t r = 0; r < rows; ++r) {
      for (int h = 0; h < layout.kv_heads; ++h) {
        for (int d = 0; d < layout.head_dim; ++d) {
          const int64_t at = static_cast<int64_t>(r) * width + int64_t{h} * layout.head_dim + d;
          ASSERT_EQ(plane.key(slots[r], h, d), f32_to_f16(k.data()[at])) << k.data()[at];
          ASSERT_EQ(plane.value(slots[r], h, d), f32_to_f16(v.data()[at])) << v.data()[at];
        }
      }
    }
    for (const int32_t slot : rest) {
      for (int h = 0; h < layout.kv_heads; ++h) {
        for (int d = 0; d < layout.head_dim; ++d) {
          ASSERT_EQ(plane.key(slot, h, d), kUntouched);
          ASSERT_EQ(plane.value(slot, h, d), kUntouched);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StoreKvTest, testing::ValuesIn(kAllIsas), isa_test_name);

TEST(CopyKvTest, CopiesOneSlotAndNothingElse) {
  Random random(81);
  for (int i = 0; i < kLayoutCount; ++i) {
    const KvLayout layout = layouts(i);
    Plane plane(layout);
    for (uint16_t& half : std::span(plane.data(), plane.contents().size())) {
      half = static_cast<uint16_t>(random.next());
    }
    for (int round = 0; round < 40; ++round) {
      const auto from = static_cast<int32_t>(random.below(kPages * kPagePositions));
      // Within a page, within a tile, and far away.
      const auto to = static_cast<int32_t>(
          round % 3 == 0   ? random.below(kPages * kPagePositions)
          : round % 3 == 1 ? from / kPagePositions * kPagePositions + random.below(kPagePositions)
                           : from / kKeyTile * kKeyTile + random.below(kKeyTile));
      Plane expected(layout);
      std::ranges::copy(plane.contents(), expected.data());
      for (int h = 0; h < layout.kv_heads; ++h) {
        for (int d = 0; d < layout.head_dim; ++d) {
          expected.key(to, h, d) = plane.key(from, h, d);
          expected.value(to, h, d) = plane.value(from, h, d);
        }
      }
      copy_kv(layout, plane.data(), from, to);
      ASSERT_EQ(plane.contents(), expected.contents()) << from << " to " << to;
    }
  }
}

TEST(CopyKvTest, ToItselfIsNothing) {
  Random random(82);
  const KvLayout layout = layouts(1);
  Plane plane(layout);
  for (uint16_t& half : std::span(plane.data(), plane.contents().size())) {
    half = static_cast<uint16_t>(random.next());
  }
  const std::vector<uint16_t> before = plane.contents();
  copy_kv(layout, plane.data(), 77, 77);
  EXPECT_EQ(plane.contents(), before);
}

}  // namespace
}  // namespace aerie::kernels

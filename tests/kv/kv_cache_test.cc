#include "kv/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "tests/testing/kv_bytes.h"

namespace aerie::kv_cache_test {

using kernels::KvType;
using ::testing::HasSubstr;
constexpr int kPage = kernels::kPagePositions;

ModelConfig config_of(int layers = 3, int kv_heads = 2, int head_dim = 16) {
  ModelConfig config;
  config.layers = layers;
  config.heads = config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  return config;
}

class KvCacheTest : public testing::TestWithParam<KvType> {
 protected:
  static KvCache cache_of(int pages, int sequences) {
    return std::move(KvCache::create(config_of(), int64_t{pages} * kPage, sequences, GetParam()))
        .value();
  }
};

// Calls fn(byte, place) for all that a slot holds in all layers; places are all different.
template <typename Fn>
void for_each_byte(KvCache& cache, int32_t slot, const Fn& fn) {
  uint32_t place = 0;
  for (int layer = 0; layer < cache.layers(); ++layer) {
    if (cache.plane(layer) == nullptr) continue;
    for (const int64_t at : test::bytes_of_slot(cache.layout(layer), slot)) {
      fn(cache.plane(layer)[at], place++);
    }
  }
}

std::byte byte_of(uint32_t entry, uint32_t place) {
  return static_cast<std::byte>((entry * 2654435761u + place * 40503u) >> 7);
}

void write(KvCache& cache, int32_t slot, uint32_t entry) {
  for_each_byte(cache, slot,
                [&](std::byte& byte, uint32_t place) { byte = byte_of(entry, place); });
}

bool holds(KvCache& cache, int32_t slot, uint32_t entry) {
  bool same = true;
  for_each_byte(cache, slot, [&](std::byte& byte, uint32_t place) {
    same = same && byte == byte_of(entry, place);
  });
  return same;
}

int32_t slot_of(const KvCache& cache, KvCache::Id id, int position) {
  return cache.pages(id)[static_cast<size_t>(position / kPage)] * kPage + position % kPage;
}

// A sequence with entries 0 .. length - 1.
KvCache::Id filled(KvCache& cache, int length) {
  const KvCache::Id id = *cache.open();
  EXPECT_TRUE(cache.reserve(id, length).ok());
  for (int i = 0; i < length; ++i) write(cache, cache.slot(id, i), static_cast<uint32_t>(i));
  cache.commit_first(id, length);
  return id;
}

void expect_entries(KvCache& cache, KvCache::Id id, const std::vector<uint32_t>& entries) {
  ASSERT_EQ(cache.committed(id), static_cast<int>(entries.size()));
  for (size_t i = 0; i < entries.size(); ++i) {
    ASSERT_TRUE(holds(cache, slot_of(cache, id, static_cast<int>(i)), entries[i]))
        << "position " << i;
  }
}

TEST_P(KvCacheTest, TellsWhatItTakes) {
  const ModelConfig config = config_of();
  // Keys and values of 64 positions, two heads of 16, in 16 bits.
  const auto bytes = [&](int64_t positions) {
    return KvCache::bytes_needed(config, positions, GetParam());
  };
  // Keys and values of 64 positions, two heads of 16: in 16 bits, or in 8 with a scale of 32.
  EXPECT_EQ(bytes(1), 3 * 2 * 64 * 2 * (GetParam() == KvType::kF16 ? 16 * 2 : 16 + 4));
  EXPECT_EQ(bytes(64), bytes(1));
  EXPECT_EQ(bytes(65), 2 * bytes(1));
  const KvCache cache = std::move(KvCache::create(config, 65, 1, GetParam())).value();
  EXPECT_EQ(cache.positions(), 128);
  EXPECT_EQ(cache.layout().type, GetParam());
}

// Heads of their own for each layer, and a layer that reads another's.
TEST_P(KvCacheTest, LayersMayDiffer) {
  ModelConfig config = config_of(4);
  config.kv_by_layer = {{2, 16}, {1, 48}, {2, 16}, {1, 48}};
  config.kv_sources = {0, 1, 2, 1};
  const int64_t page = 2 * 64 * (GetParam() == KvType::kF16 ? 2 : 1);
  const int64_t scales = 2 * 64 * (GetParam() == KvType::kF16 ? 0 : 4);
  EXPECT_EQ(KvCache::bytes_needed(config, 64, GetParam()), page * (32 + 48 + 32) + 5 * scales);
  KvCache cache = std::move(KvCache::create(config, 256, 2, GetParam())).value();
  EXPECT_EQ(cache.bytes(), KvCache::bytes_needed(config, 256, GetParam()));
  EXPECT_EQ(cache.plane(3), nullptr);
  EXPECT_EQ(cache.layout(1).head_dim, 48);
  EXPECT_EQ(cache.layout(2).kv_heads, 2);
  // What is kept moves in all of them.
  const KvCache::Id id = filled(cache, 70);
  ASSERT_TRUE(cache.reserve(id, 4).ok());
  for (int i = 0; i < 4; ++i) write(cache, cache.slot(id, i), 100u + static_cast<uint32_t>(i));
  const int32_t path[] = {1, 3};
  cache.commit(id, path);
  std::vector<uint32_t> entries(70);
  std::iota(entries.begin(), entries.end(), 0u);
  entries.insert(entries.end(), {101u, 103u});
  expect_entries(cache, id, entries);
}

TEST_P(KvCacheTest, RefusesMoreThanItCanNumber) {
  for (const int64_t positions : {int64_t{1} << 31, int64_t{1} << 38, int64_t{1} << 40}) {
    const Status status = KvCache::create(config_of(), positions, 1, GetParam()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(std::to_string(positions)), std::string::npos);
  }
}

TEST_P(KvCacheTest, NeedsNoPagesUntilRowsAreReserved) {
  KvCache cache = cache_of(4, 2);
  const KvCache::Id id = *cache.open();
  EXPECT_EQ(cache.free_pages(), 4);
  EXPECT_TRUE(cache.reserve(id, 0).ok());
  EXPECT_EQ(cache.free_pages(), 4);
  EXPECT_TRUE(cache.reserve(id, 64).ok());
  EXPECT_EQ(cache.free_pages(), 3);
  EXPECT_TRUE(cache.reserve(id, 65).ok());
  EXPECT_EQ(cache.free_pages(), 2);
  EXPECT_TRUE(cache.reserve(id, 3).ok());  // what it has, it keeps
  EXPECT_EQ(cache.free_pages(), 2);
  cache.close(id);
  EXPECT_EQ(cache.free_pages(), 4);
}

TEST_P(KvCacheTest, ReservesAllOrNothing) {
  KvCache cache = cache_of(4, 2);
  const KvCache::Id a = filled(cache, 100), b = filled(cache, 10);
  EXPECT_EQ(cache.free_pages(), 1);
  const Status status = cache.reserve(a, 128);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("100"));
  EXPECT_THAT(status.message(), HasSubstr("128"));
  EXPECT_THAT(status.message(), HasSubstr("256"));
  EXPECT_EQ(cache.free_pages(), 1);
  EXPECT_EQ(cache.pages(a).size(), 2u);
  EXPECT_TRUE(cache.reserve(b, 64).ok());
  EXPECT_FALSE(cache.reserve(a, 30).ok());
  cache.close(b);
  EXPECT_TRUE(cache.reserve(a, 128).ok());
}

TEST_P(KvCacheTest, OpensSoManySequencesAndNoMore) {
  KvCache cache = cache_of(2, 2);
  const KvCache::Id a = *cache.open();
  const KvCache::Id b = *cache.open();
  EXPECT_NE(a, b);
  const auto third = cache.open();
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(third.status().message(), HasSubstr("2"));
  cache.close(a);
  EXPECT_EQ(*cache.open(), a);
}

TEST_P(KvCacheTest, CommitMovesThePathInAllLayers) {
  for (const int length : {0, 5, 62, 63, 64, 127}) {
    KvCache cache = cache_of(4, 1);
    const KvCache::Id id = filled(cache, length);
    ASSERT_TRUE(cache.reserve(id, 10).ok());
    for (int i = 0; i < 10; ++i) write(cache, cache.slot(id, i), 1000 + static_cast<uint32_t>(i));
    const int32_t path[] = {0, 1, 4, 5, 9};
    cache.commit(id, path);
    std::vector<uint32_t> expected(static_cast<size_t>(length));
    std::iota(expected.begin(), expected.end(), 0u);
    for (const int32_t entry : path) expected.push_back(1000 + static_cast<uint32_t>(entry));
    expect_entries(cache, id, expected);
  }
}

TEST_P(KvCacheTest, CommitOfNothingAndOfTheRootAlone) {
  KvCache cache = cache_of(2, 1);
  const KvCache::Id id = filled(cache, 3);
  ASSERT_TRUE(cache.reserve(id, 4).ok());
  for (int i = 0; i < 4; ++i) write(cache, cache.slot(id, i), 50 + static_cast<uint32_t>(i));
  cache.commit(id, {});
  expect_entries(cache, id, {0, 1, 2});
  const int32_t root[] = {0};
  cache.commit(id, root);
  expect_entries(cache, id, {0, 1, 2, 50});
}

TEST_P(KvCacheTest, TruncateDropsTheEndAndKeepsThePages) {
  KvCache cache = cache_of(3, 1);
  const KvCache::Id id = filled(cache, 130);
  cache.truncate(id, 130);
  EXPECT_EQ(cache.committed(id), 130);
  cache.truncate(id, 63);
  EXPECT_EQ(cache.free_pages(), 0);
  ASSERT_TRUE(cache.reserve(id, 129).ok());
  EXPECT_FALSE(cache.reserve(id, 130).ok());
  EXPECT_EQ(cache.slot(id, 0), slot_of(cache, id, 63));
  write(cache, cache.slot(id, 0), 500);
  cache.commit_first(id, 1);
  std::vector<uint32_t> expected(64);
  std::iota(expected.begin(), expected.end(), 0u);
  expected[63] = 500;
  expect_entries(cache, id, expected);
}

// The cache as one would write it without pages.
struct Reference {
  struct Sequence {
    bool open = false;
    std::vector<uint32_t> entries;
    std::vector<uint32_t> reserved;  // behind them
    int pages = 0;
  };
  std::vector<Sequence> sequences;
  int free_pages = 0;
};

class RandomOperations {
 public:
  RandomOperations(uint64_t seed, KvCache cache, int sequences)
      : random_(seed), cache_(std::move(cache)) {
    reference_.sequences.resize(static_cast<size_t>(sequences));
    reference_.free_pages = cache_.free_pages();
  }

  void step() {
    const auto id = static_cast<KvCache::Id>(below(static_cast<int>(reference_.sequences.size())));
    Reference::Sequence& s = reference_.sequences[static_cast<size_t>(id)];
    if (!s.open) return open();
    switch (below(10)) {
      case 0:
        return close(id, s);
      case 1:
        return truncate(id, s);
      case 2:
      case 3:
        return commit_first(id, s);
      case 4:
      case 5:
      case 6:
        return commit(id, s);
      default:
        return reserve(id, s);
    }
  }

  void check() {
    EXPECT_EQ(cache_.free_pages(), reference_.free_pages);
    std::set<int32_t> pages;
    size_t held = 0;
    for (size_t id = 0; id < reference_.sequences.size(); ++id) {
      const Reference::Sequence& s = reference_.sequences[id];
      if (!s.open) continue;
      const auto of = cache_.pages(static_cast<KvCache::Id>(id));
      pages.insert(of.begin(), of.end());
      held += of.size();
      expect_entries(cache_, static_cast<KvCache::Id>(id), s.entries);
    }
    EXPECT_EQ(pages.size(), held) << "a page belongs to two sequences";
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  void open() {
    const auto id = cache_.open();
    ASSERT_TRUE(id.ok());
    Reference::Sequence& s = reference_.sequences[static_cast<size_t>(*id)];
    ASSERT_FALSE(s.open);
    s.open = true;
  }
  void close(KvCache::Id id, Reference::Sequence& s) {
    cache_.close(id);
    reference_.free_pages += s.pages;
    s = {};
  }
  void truncate(KvCache::Id id, Reference::Sequence& s) {
    const int length = below(static_cast<int>(s.entries.size()) + 1);
    cache_.truncate(id, length);
    s.entries.resize(static_cast<size_t>(length));
    s.reserved.clear();
  }
  void reserve(KvCache::Id id, Reference::Sequence& s) {
    const int rows = below(3) == 0 ? below(200) : below(20);
    const int wanted = (static_cast<int>(s.entries.size()) + rows + kPage - 1) / kPage;
    const int missing = std::max(0, wanted - s.pages);
    const Status status = cache_.reserve(id, rows);
    ASSERT_EQ(status.ok(), missing <= reference_.free_pages);
    if (!status.ok()) return;
    reference_.free_pages -= missing;
    s.pages += missing;
    s.reserved.clear();
    for (int i = 0; i < rows; ++i) {
      s.reserved.push_back(next_++);
      write(cache_, cache_.slot(id, i), s.reserved.back());
    }
  }
  void commit_first(KvCache::Id id, Reference::Sequence& s) {
    const int count = below(static_cast<int>(s.reserved.size()) + 1);
    cache_.commit_first(id, count);
    s.entries.insert(s.entries.end(), s.reserved.begin(), s.reserved.begin() + count);
    s.reserved.clear();
  }
  void commit(KvCache::Id id, Reference::Sequence& s) {
    std::vector<int32_t> path;
    for (size_t i = 0; i < s.reserved.size(); ++i) {
      if (below(3) != 0) path.push_back(static_cast<int32_t>(i));
    }
    cache_.commit(id, path);
    for (const int32_t entry : path) s.entries.push_back(s.reserved[static_cast<size_t>(entry)]);
    s.reserved.clear();
  }

  std::mt19937_64 random_;
  KvCache cache_;
  Reference reference_;
  uint32_t next_ = 0;
};

TEST_P(KvCacheTest, RandomOperationsAgreeWithASimpleModel) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const int sequences = 1 + static_cast<int>(seed % 4);
    RandomOperations operations(seed, cache_of(6 + static_cast<int>(seed % 5), sequences),
                                sequences);
    for (int i = 0; i < 300; ++i) {
      operations.step();
      if (i % 10 == 0) operations.check();
      if (testing::Test::HasFailure()) FAIL() << "seed " << seed << ", step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KvCacheTest, testing::ValuesIn(kernels::kAllKvTypes),
                         [](const testing::TestParamInfo<KvType>& tested) {
                           return std::string(kernels::kv_type_name(tested.param));
                         });

}  // namespace aerie::kv_cache_test

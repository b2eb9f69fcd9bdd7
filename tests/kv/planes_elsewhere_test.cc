// A cache whose planes are elsewhere does what one with planes does, and its moves, made there,
// give the same entries.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "tests/kv/random_calls.h"

namespace aerie::planes_elsewhere_test {

constexpr int kSequences = RandomCalls::kSequences;
constexpr int64_t kPositions = 1024;

// The last layer reads the keys and values of the one before.
ModelConfig config_of() {
  ModelConfig config = RandomCalls::config();
  config.kv_sources = {0, 1, 1};
  return config;
}

KvCache cache_with(KvCache::Planes planes, kernels::KvType type = kernels::KvType::kF16) {
  auto cache = KvCache::create(
      config_of(),
      {.positions = kPositions, .sequences = kSequences, .type = type, .planes = planes});
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return std::move(cache).value();
}

// The cache's planes, held by another.
class Shadow {
 public:
  explicit Shadow(const KvCache& cache)
      : layout_(cache.layout()),
        planes_(2, std::vector<std::byte>(static_cast<size_t>(cache.pages() * layout_.page()))) {}

  std::byte* plane(int layer) { return planes_[static_cast<size_t>(layer)].data(); }
  int layers() const { return static_cast<int>(planes_.size()); }
  void write(int32_t slot, uint8_t mark) {
    for (int layer = 0; layer < layers(); ++layer) write_mark(layout_, plane(layer), slot, mark);
  }
  void make_moves(KvCache& cache) {
    for (const SlotMove& move : cache.moves()) {
      for (int layer = 0; layer < layers(); ++layer) {
        kernels::copy_kv(layout_, plane(layer), move.from, move.to);
      }
    }
    cache.clear_moves();
  }
  void expect_like(KvCache& cache) {
    for (int layer = 0; layer < layers(); ++layer) {
      const std::vector<std::byte>& own = planes_[static_cast<size_t>(layer)];
      EXPECT_EQ(std::memcmp(own.data(), cache.plane(layer), own.size()), 0) << layer;
    }
  }

 private:
  kernels::KvLayout layout_;
  std::vector<std::vector<std::byte>> planes_;
};

void fill(KvCache& cache, Shadow& shadow) {
  std::mt19937_64 random(7);
  for (int layer = 0; layer < shadow.layers(); ++layer) {
    const auto bytes = static_cast<size_t>(cache.pages() * cache.layout().page());
    std::generate_n(cache.plane(layer), bytes, [&] { return static_cast<std::byte>(random()); });
    std::memcpy(shadow.plane(layer), cache.plane(layer), bytes);
  }
}

void expect_same_books(const KvCache& a, const KvCache& b) {
  EXPECT_EQ(a.free_pages(), b.free_pages());
  EXPECT_EQ(a.used_pages(), b.used_pages());
  for (KvCache::Id id = 0; id < kSequences; ++id) {
    EXPECT_EQ(a.committed(id), b.committed(id));
    EXPECT_TRUE(std::ranges::equal(a.pages(id), b.pages(id)));
  }
}

class PlanesElsewhere : public testing::TestWithParam<kernels::KvType> {};

INSTANTIATE_TEST_SUITE_P(Types, PlanesElsewhere,
                         testing::Values(kernels::KvType::kF16, kernels::KvType::kQ8),
                         [](const auto& one) {
                           return one.param == kernels::KvType::kF16 ? "F16" : "Q8";
                         });

TEST_P(PlanesElsewhere, MovesGiveTheSameEntries) {
  size_t moves = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    KvCache here = cache_with(KvCache::Planes::kHere, GetParam());
    KvCache there = cache_with(KvCache::Planes::kElsewhere, GetParam());
    Shadow shadow(there);
    fill(here, shadow);
    KvJournal journal;
    here.write_down(&journal);
    RandomCalls calls(seed);
    const auto follow = [&] {
      const Status status = replay(journal.bytes(), there);
      EXPECT_TRUE(status.ok()) << status.message();
      journal.clear();
      moves += there.moves().size();
      shadow.make_moves(there);
    };
    const auto pass = [&](KvCache::Id id, int rows, uint8_t mark) {
      follow();
      for (int i = 0; i < rows; ++i) {
        const auto own = static_cast<uint8_t>(mark + i);
        for (int layer = 0; layer < shadow.layers(); ++layer) {
          write_mark(here.layout(), here.plane(layer), here.slot(id, i), own);
        }
        shadow.write(there.slot(id, i), own);
      }
    };
    for (int i = 0; i < 400; ++i) calls.make(here, pass);
    follow();
    expect_same_books(here, there);
    shadow.expect_like(here);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(moves, 1000u);
}

// Nobody makes them for long, until they are so many that some are left out. The entries are
// whatever the planes held.
TEST_P(PlanesElsewhere, MovesMayGather) {
  KvCache caches[] = {cache_with(KvCache::Planes::kHere, GetParam()),
                      cache_with(KvCache::Planes::kElsewhere, GetParam())};
  Shadow shadow(caches[1]);
  fill(caches[0], shadow);
  std::mt19937_64 random(11);
  std::vector<PrefixKey> keys(static_cast<size_t>(kPositions));
  std::iota(keys.begin(), keys.end(), PrefixKey{1});
  size_t most = 0, all = 0;
  for (int round = 0; round < 12'000; ++round) {
    std::vector<int32_t> path;
    for (int32_t i = 0; i < 40; ++i) {
      if (random() % 2 == 0) path.push_back(i);
    }
    const size_t length = random() % 300, before = caches[1].moves().size();
    for (KvCache& cache : caches) {
      const KvCache::Id id = *cache.open();
      cache.adopt(id, std::span(keys).first(length));
      ASSERT_TRUE(cache.reserve(id, 40).ok());
      cache.commit(id, path);
      if (round % 3 == 0)
        cache.keep(id, std::span(keys).first(static_cast<size_t>(cache.committed(id))));
      cache.close(id);
    }
    const size_t after = caches[1].moves().size();
    all += after > before ? after - before : 0;
    most = std::max(most, after);
  }
  EXPECT_GT(all, 2 * SlotMoves::kMany);
  EXPECT_LE(most, SlotMoves::kMany);
  shadow.make_moves(caches[1]);
  shadow.expect_like(caches[0]);
  expect_same_books(caches[0], caches[1]);
}

TEST(PlanesElsewhereTest, HasNoPlanesAndTellsWhatTheyTake) {
  KvCache here = cache_with(KvCache::Planes::kHere);
  KvCache there = cache_with(KvCache::Planes::kElsewhere);
  EXPECT_EQ(there.layers(), here.layers());
  for (int layer = 0; layer < there.layers(); ++layer) EXPECT_EQ(there.plane(layer), nullptr);
  EXPECT_EQ(there.bytes(), here.bytes());
  EXPECT_EQ(there.bytes(), KvCache::bytes_needed(config_of(), kPositions));
  EXPECT_EQ(there.creation().planes, KvCache::Planes::kElsewhere);
}

TEST(PlanesElsewhereTest, CommitsAndCopiesAreWrittenDownInOrder) {
  KvCache cache = cache_with(KvCache::Planes::kElsewhere);
  const KvCache::Id first = *cache.open();
  ASSERT_TRUE(cache.reserve(first, 6).ok());
  const int32_t path[] = {0, 2, 5};
  cache.commit(first, path);
  const int32_t page = cache.pages(first)[0] * kernels::kPagePositions;
  ASSERT_EQ(cache.moves().size(), 2u);
  EXPECT_EQ(cache.moves()[0].from, page + 2);
  EXPECT_EQ(cache.moves()[0].to, page + 1);
  EXPECT_EQ(cache.moves()[1].from, page + 5);
  EXPECT_EQ(cache.moves()[1].to, page + 2);
  const PrefixKey keys[] = {1, 2, 3};
  cache.keep(first, keys);
  const KvCache::Id second = *cache.open();
  ASSERT_EQ(cache.adopt(second, keys), 3);
  ASSERT_TRUE(cache.reserve(second, 1).ok());
  const int32_t copy = cache.pages(second)[0] * kernels::kPagePositions;
  ASSERT_NE(copy, page);
  ASSERT_EQ(cache.moves().size(), 5u);
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(cache.moves()[static_cast<size_t>(2 + i)].from, page + i);
    EXPECT_EQ(cache.moves()[static_cast<size_t>(2 + i)].to, copy + i);
  }
  cache.clear_moves();
  EXPECT_TRUE(cache.moves().empty());
  // Where the planes are here nothing is left to do.
  KvCache here = cache_with(KvCache::Planes::kHere);
  ASSERT_TRUE(here.reserve(*here.open(), 6).ok());
  here.commit(0, path);
  EXPECT_TRUE(here.moves().empty());
}

TEST(PlanesElsewhereTest, WindowsAreRefused) {
  ModelConfig windows = config_of();
  windows.windows = {0, 100, 100};
  KvCache::Creation creation = {.positions = kPositions,
                                .sequences = 1,
                                .windows = {.rows = 64, .sequences = 1},
                                .planes = KvCache::Planes::kElsewhere};
  const Status status = KvCache::create(windows, creation).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_NE(status.message().find("windows"), std::string::npos) << status.message();
  // With a place for every page they are as other layers.
  creation.windows.rows = 0;
  EXPECT_TRUE(KvCache::create(windows, creation).ok());
}

}  // namespace aerie::planes_elsewhere_test

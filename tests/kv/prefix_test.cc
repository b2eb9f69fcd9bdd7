// Prefixes that are kept, shared and copied on write.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "kv/kv_cache.h"
#include "tests/testing/kv_bytes.h"

namespace aerie::prefix_test {

constexpr int kPage = kernels::kPagePositions;

ModelConfig config_of() {
  ModelConfig config;
  config.layers = 2;
  config.heads = config.kv_heads = 1;
  config.head_dim = 16;
  return config;
}

KvCache cache_of(int pages, int sequences) {
  return std::move(KvCache::create(config_of(), int64_t{pages} * kPage, sequences)).value();
}

// What an entry holds is a function of its key and of those before.
uint32_t content(const std::vector<PrefixKey>& keys, size_t index) {
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i <= index; ++i) hash = (hash ^ keys[i]) * 1099511628211u;
  return static_cast<uint32_t>(hash >> 20);
}

template <typename Fn>
void for_each_byte(KvCache& cache, int32_t slot, const Fn& fn) {
  const std::vector<int64_t> bytes = test::bytes_of_slot(cache.layout(), slot);
  uint32_t place = 0;
  for (int layer = 0; layer < cache.layers(); ++layer) {
    for (const int64_t at : bytes) fn(cache.plane(layer)[at], place++);
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

int32_t slot_of(const KvCache& cache, KvCache::Id id, size_t position) {
  return cache.pages(id)[position / kPage] * kPage + static_cast<int32_t>(position % kPage);
}

// A sequence and what it should hold.
struct Text {
  KvCache::Id id = -1;
  std::vector<PrefixKey> keys;
};

void expect_content(KvCache& cache, const Text& text) {
  ASSERT_EQ(cache.committed(text.id), static_cast<int>(text.keys.size()));
  for (size_t i = 0; i < text.keys.size(); ++i) {
    ASSERT_TRUE(holds(cache, slot_of(cache, text.id, i), content(text.keys, i))) << i;
  }
}

void append(KvCache& cache, Text& text, const std::vector<PrefixKey>& keys) {
  ASSERT_TRUE(cache.reserve(text.id, static_cast<int>(keys.size())).ok());
  for (size_t i = 0; i < keys.size(); ++i) {
    text.keys.push_back(keys[i]);
    write(cache, cache.slot(text.id, static_cast<int>(i)),
          content(text.keys, text.keys.size() - 1));
  }
  cache.commit_first(text.id, static_cast<int>(keys.size()));
}

std::vector<PrefixKey> counting(int from, int count) {
  std::vector<PrefixKey> keys;
  for (int i = 0; i < count; ++i) keys.push_back(static_cast<PrefixKey>(from + i));
  return keys;
}

TEST(Prefixes, AreFoundToTheLastEntry) {
  KvCache cache = cache_of(16, 2);
  Text first{*cache.open(), {}};
  append(cache, first, counting(0, 150));
  cache.keep(first.id, first.keys);
  cache.close(first.id);
  EXPECT_EQ(cache.used_pages(), 0);
  EXPECT_EQ(cache.free_pages(), 13);
  for (const int length : {1, 63, 64, 65, 128, 149, 150}) {
    std::vector<PrefixKey> keys = counting(0, length);
    keys.push_back(999);
    EXPECT_EQ(cache.kept(keys), length);
    Text text{*cache.open(), counting(0, length)};
    EXPECT_EQ(cache.adopt(text.id, keys), length);
    expect_content(cache, text);
    append(cache, text, {999, 998});
    expect_content(cache, text);
    cache.close(text.id);
  }
  EXPECT_EQ(cache.kept(counting(1, 10)), 0);
  EXPECT_EQ(cache.kept({}), 0);
  Text again{*cache.open(), counting(0, 150)};
  EXPECT_EQ(cache.adopt(again.id, again.keys), 150);
  expect_content(cache, again);
}

TEST(Prefixes, OfOneTenantAreNotThereForAnother) {
  KvCache cache = cache_of(8, 2);
  const std::vector<PrefixKey> keys = counting(0, 100);
  for (const std::string tenant : {"a", "b"}) {
    EXPECT_EQ(cache.kept(keys, tenant), 0);
    Text text{*cache.open(), {}};
    EXPECT_EQ(cache.adopt(text.id, keys, tenant), 0);
    append(cache, text, keys);
    cache.keep(text.id, keys, true, tenant);
    cache.close(text.id);
    EXPECT_EQ(cache.kept(keys, tenant), 100);
  }
  EXPECT_EQ(cache.kept(keys), 0);
  EXPECT_EQ(cache.free_pages(), 4);  // each has its own two
  Text text{*cache.open(), keys};
  EXPECT_EQ(cache.adopt(text.id, keys, "a"), 100);
  expect_content(cache, text);
  cache.close(text.id);
  // All of them together fill the cache, and those go that were not used for the longest time.
  Text more{*cache.open(), {}};
  append(cache, more, counting(1000, 6 * kPage));
  EXPECT_EQ(cache.kept(keys, "a"), 100);
  EXPECT_EQ(cache.kept(keys, "b"), 0);
  append(cache, more, counting(2000, 2 * kPage));
  EXPECT_EQ(cache.kept(keys, "a"), 0);
  cache.close(more.id);
  EXPECT_EQ(cache.free_pages(), 8);
}

TEST(Prefixes, ASharedPageIsCopiedBeforeItIsWrittenTo) {
  KvCache cache = cache_of(8, 3);
  Text a{*cache.open(), {}};
  append(cache, a, counting(0, 100));
  cache.keep(a.id, a.keys);
  Text b{*cache.open(), counting(0, 100)};
  ASSERT_EQ(cache.adopt(b.id, b.keys), 100);
  EXPECT_EQ(cache.pages(a.id)[1], cache.pages(b.id)[1]);
  append(cache, a, counting(500, 5));
  append(cache, b, counting(700, 5));
  EXPECT_NE(cache.pages(a.id)[1], cache.pages(b.id)[1]);
  EXPECT_EQ(cache.pages(a.id)[0], cache.pages(b.id)[0]);
  expect_content(cache, a);
  expect_content(cache, b);
  // Back over what is shared, too.
  cache.truncate(b.id, 10);
  b.keys.resize(10);
  append(cache, b, counting(900, 80));
  expect_content(cache, a);
  expect_content(cache, b);
}

TEST(Prefixes, GiveWayToSequencesTheLongestUnusedFirst) {
  KvCache cache = cache_of(4, 2);
  for (int text = 0; text < 4; ++text) {
    Text one{*cache.open(), {}};
    append(cache, one, counting(1000 * text, 64));
    cache.keep(one.id, one.keys);
    cache.close(one.id);
  }
  EXPECT_EQ(cache.free_pages(), 0);
  Text used{*cache.open(), counting(0, 64)};
  EXPECT_EQ(cache.adopt(used.id, used.keys), 64);
  cache.close(used.id);
  Text fresh{*cache.open(), {}};
  append(cache, fresh, counting(50000, 128));
  EXPECT_EQ(cache.kept(counting(0, 64)), 64);
  EXPECT_EQ(cache.kept(counting(1000, 64)), 0);
  EXPECT_EQ(cache.kept(counting(2000, 64)), 0);
  EXPECT_EQ(cache.kept(counting(3000, 64)), 64);
  // All but what is in use.
  EXPECT_TRUE(cache.reserve(fresh.id, 128).ok());
  EXPECT_FALSE(cache.reserve(fresh.id, 129).ok());
  cache.close(fresh.id);
  cache.drop_kept();
  EXPECT_EQ(cache.free_pages(), 4);
}

TEST(Prefixes, TwoThatComputedTheSameShareItOnceItIsKept) {
  KvCache cache = cache_of(8, 2);
  Text a{*cache.open(), {}}, b{*cache.open(), {}};
  append(cache, a, counting(0, 128));
  append(cache, b, counting(0, 140));
  EXPECT_EQ(cache.used_pages(), 5);
  cache.keep(a.id, a.keys, false);
  cache.keep(b.id, b.keys, false);
  EXPECT_EQ(cache.used_pages(), 3);
  expect_content(cache, b);
  cache.close(a.id);
  expect_content(cache, b);
  append(cache, b, counting(7, 100));
  expect_content(cache, b);
}

// Random texts over two keys, so that many begin alike: whatever is kept, shared, copied and
// evicted, every sequence holds what it should, and no page is lost.
TEST(Prefixes, RandomOperationsKeepEveryText) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    const int pages = 6 + below(10);
    KvCache cache = cache_of(pages, 3);
    std::vector<Text> texts;
    // Runs of one key, so that texts branch at few places.
    const auto more = [&] {
      std::vector<PrefixKey> keys;
      for (int run = 1 + below(4); run > 0; --run) {
        keys.insert(keys.end(), static_cast<size_t>(1 + below(40)),
                    static_cast<PrefixKey>(below(2)));
      }
      return keys;
    };
    for (int step = 0; step < 300; ++step) {
      const int what = below(8);
      if (texts.size() < 3 && what < 3) {
        Text text{*cache.open(), more()};
        const int kept = cache.kept(text.keys);
        ASSERT_EQ(cache.adopt(text.id, text.keys), kept);
        text.keys.resize(static_cast<size_t>(kept));
        texts.push_back(std::move(text));
      } else if (!texts.empty()) {
        const size_t index = static_cast<size_t>(below(static_cast<int>(texts.size())));
        Text& text = texts[index];
        if (what < 5) {
          const std::vector<PrefixKey> keys = more();
          if (cache.reserve(text.id, static_cast<int>(keys.size())).ok()) append(cache, text, keys);
        } else if (what == 5) {
          cache.keep(text.id, text.keys, below(2) == 0);
        } else if (what == 6) {
          text.keys.resize(static_cast<size_t>(below(static_cast<int>(text.keys.size()) + 1)));
          cache.truncate(text.id, static_cast<int>(text.keys.size()));
        } else {
          if (below(4) != 0) cache.keep(text.id, text.keys);
          cache.close(text.id);
          texts.erase(texts.begin() + static_cast<ptrdiff_t>(index));
        }
      }
      for (const Text& text : texts) expect_content(cache, text);
      if (testing::Test::HasFailure()) FAIL() << "seed " << seed << ", step " << step;
    }
    for (const Text& text : texts) cache.close(text.id);
    EXPECT_EQ(cache.used_pages(), 0);
    Text all{*cache.open(), {}};
    EXPECT_TRUE(cache.reserve(all.id, pages * kPage).ok());
    cache.close(all.id);
    cache.drop_kept();
    EXPECT_EQ(cache.free_pages(), pages);
  }
}

}  // namespace aerie::prefix_test

// A cache to which everything is done that was done to another is like it.

#include "kv/kv_journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "kv/kv_cache.h"

namespace aerie::kv_journal_test {

constexpr int kSequences = 4;

ModelConfig config_with(bool window, bool states) {
  ModelConfig config;
  config.layers = 3;
  config.hidden = 32;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 16;
  config.vocab = 100;
  config.context = 1024;
  if (window) config.windows = {0, 100, 0};
  if (states) {
    config.linear = {.heads = 1, .key_heads = 1, .key_dim = 16, .value_dim = 16, .taps = 2};
    config.linear_layers = {false, true, false};
  }
  return config;
}

KvCache make_cache(bool window, bool states) {
  auto cache =
      KvCache::create(config_with(window, states), 1024, kSequences, kernels::KvType::kF16,
                      {.loose_rows = states ? 64 : 0, .snapshots = states ? 4 : 0},
                      window ? KvCache::Windows{64, kSequences} : KvCache::Windows{0, 0, 0});
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return std::move(cache).value();
}

// What passes do: the same numbers into the same slots of both.
void write_rows(KvCache& cache, KvCache::Id id, int rows, uint8_t mark) {
  for (int layer = 0; layer < cache.layers(); ++layer) {
    if (cache.plane(layer) == nullptr || cache.has_places(layer)) continue;
    for (int i = 0; i < rows; ++i) {
      const int32_t slot = cache.slot(id, i);
      const kernels::KvLayout& layout = cache.layout(layer);
      std::byte* const keys = cache.plane(layer) + layout.keys(slot / kernels::kPagePositions, 0);
      const auto at = layout.key_element(slot % kernels::kPagePositions, 0) * 2;
      keys[at] = std::byte{static_cast<uint8_t>(mark + i)};
    }
  }
}

void expect_alike(KvCache& a, KvCache& b) {
  EXPECT_EQ(a.free_pages(), b.free_pages());
  EXPECT_EQ(a.used_pages(), b.used_pages());
  for (KvCache::Id id = 0; id < kSequences; ++id) {
    EXPECT_EQ(a.committed(id), b.committed(id));
    EXPECT_TRUE(std::ranges::equal(a.pages(id), b.pages(id)));
  }
  for (int layer = 0; layer < a.layers(); ++layer) {
    if (a.plane(layer) == nullptr || a.has_places(layer)) continue;
    const auto bytes = static_cast<size_t>(a.pages() * a.layout(layer).page());
    EXPECT_EQ(std::memcmp(a.plane(layer), b.plane(layer), bytes), 0) << layer;
  }
}

// Does something that may be done to the cache, at random; the rows that a pass then writes.
class Steps {
 public:
  explicit Steps(uint64_t seed) : random_(seed) {}

  void make(KvCache& a, KvCache& b, const std::function<void()>& follow) {
    const int number = draw(kSequences);
    Open& one = open_[static_cast<size_t>(number)];
    if (one.id < 0) return begin(a, one);
    const int kind = draw(10);
    if (kind == 0) {
      std::vector<PrefixKey> keys(one.keys.begin(), one.keys.begin() + a.committed(one.id));
      a.keep(one.id, keys, draw(2) == 0, draw(2) == 0 ? "a" : "b");
      a.close(one.id);
      one = {};
    } else if (kind == 1) {
      a.truncate(one.id, draw(a.committed(one.id) + 1));
    } else if (kind == 2 && draw(10) == 0) {
      a.drop_kept();
    } else {
      rows(a, b, one, follow);
    }
  }

 private:
  struct Open {
    KvCache::Id id = -1;
    std::vector<PrefixKey> keys;
  };

  int draw(int below) { return static_cast<int>(random_() % static_cast<uint64_t>(below)); }

  void begin(KvCache& a, Open& one) {
    const auto id = a.open();
    if (!id.ok()) return;
    one.id = *id;
    // Few texts, so that beginnings are met again.
    const int text = draw(3);
    for (int i = 0; i < 1024; ++i) one.keys.push_back(static_cast<PrefixKey>(i * 3 + text + 1));
    a.adopt(one.id, std::span(one.keys).first(300), draw(2) == 0 ? "a" : "b");
  }

  void rows(KvCache& a, KvCache& b, Open& one, const std::function<void()>& follow) {
    const int count = 1 + draw(40);
    if (a.committed(one.id) + count > 900) return;
    const bool settled = draw(2) == 0;
    if (!a.reserve(one.id, count, settled ? count : 0).ok()) return;
    follow();
    const auto mark = static_cast<uint8_t>(draw(256));
    write_rows(a, one.id, count, mark);
    write_rows(b, one.id, count, mark);
    if (settled || draw(2) == 0) {
      a.commit_first(one.id, settled ? count : draw(count + 1));
      return;
    }
    std::vector<int32_t> path;
    for (int i = 0; i < count; ++i) {
      if (draw(2) == 0) path.push_back(i);
    }
    a.commit(one.id, path);
  }

  std::mt19937_64 random_;
  std::array<Open, kSequences> open_;
};

class Journal : public testing::TestWithParam<bool> {};

TEST_P(Journal, MakesAnotherCacheAlike) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    KvCache first = make_cache(GetParam(), false), second = make_cache(GetParam(), false);
    KvJournal journal;
    first.write_down(&journal);
    Steps steps(seed);
    const auto follow = [&] {
      const Status status = replay(journal.bytes(), second);
      EXPECT_TRUE(status.ok()) << status.message();
      journal.clear();
    };
    for (int i = 0; i < 400; ++i) steps.make(first, second, follow);
    follow();
    expect_alike(first, second);
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, Journal, testing::Bool());

// A call that is left out is seen.
TEST(Journals, ACallThatIsMissingIsFound) {
  KvCache first = make_cache(false, false), second = make_cache(false, false);
  KvJournal journal;
  first.write_down(&journal);
  const auto id = first.open();
  ASSERT_TRUE(first.reserve(*id, 3).ok());
  ASSERT_TRUE(replay(journal.bytes(), second).ok());
  journal.clear();
  first.commit_first(*id, 2);
  EXPECT_NE(first.committed(*id), second.committed(*id));
  ASSERT_TRUE(replay(journal.bytes(), second).ok());
  EXPECT_EQ(first.committed(*id), second.committed(*id));
}

TEST(Journals, WhatIsNoneIsRefused) {
  KvCache cache = make_cache(false, false);
  KvJournal journal;
  const std::vector<int32_t> path = {0, 1};
  journal.add(KvCall::kOpen);
  journal.add(KvCall::kReserve, 0, 4);
  const size_t calls = journal.bytes().size();
  journal.add_path(KvCall::kCommit, 0, path);
  const std::vector<std::byte> whole(journal.bytes().begin(), journal.bytes().end());
  EXPECT_FALSE(replay(std::span(whole).first(calls + 20), cache).ok());
  EXPECT_FALSE(replay(std::span(whole).first(7), cache).ok());
  std::vector<std::byte> strange = whole;
  strange[0] = std::byte{99};
  EXPECT_FALSE(replay(strange, cache).ok());
}

}  // namespace aerie::kv_journal_test

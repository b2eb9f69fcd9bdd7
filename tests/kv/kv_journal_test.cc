// A cache to which everything is done that was done to another is like it.

#include "kv/kv_journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "kv/kv_cache.h"
#include "tests/kv/random_calls.h"

namespace aerie::kv_journal_test {

constexpr int kSequences = RandomCalls::kSequences;

ModelConfig config_with(bool window, bool states) {
  ModelConfig config = RandomCalls::config();
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
      write_mark(cache.layout(layer), cache.plane(layer), cache.slot(id, i),
                 static_cast<uint8_t>(mark + i));
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

class Journal : public testing::TestWithParam<bool> {};

TEST_P(Journal, MakesAnotherCacheAlike) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    KvCache first = make_cache(GetParam(), false), second = make_cache(GetParam(), false);
    KvJournal journal;
    first.write_down(&journal);
    RandomCalls calls(seed);
    const auto follow = [&] {
      const Status status = replay(journal.bytes(), second);
      EXPECT_TRUE(status.ok()) << status.message();
      journal.clear();
    };
    const auto pass = [&](KvCache::Id id, int rows, uint8_t mark) {
      follow();
      write_rows(first, id, rows, mark);
      write_rows(second, id, rows, mark);
    };
    for (int i = 0; i < 400; ++i) calls.make(first, pass);
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

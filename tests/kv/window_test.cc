// Layers with a window in a cache that has places for some of their pages alone.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "kv/kv_cache.h"
#include "tests/testing/kv_bytes.h"

namespace aerie::window_test {

using kernels::KvType;
using ::testing::HasSubstr;
constexpr int kPage = kernels::kPagePositions;
constexpr int kWindow = 100;

// A layer of each kind.
ModelConfig config_of() {
  ModelConfig config;
  config.layers = 2;
  config.heads = config.kv_heads = 1;
  config.head_dim = 16;
  config.windows = {0, kWindow};
  return config;
}

KvCache cache_of(int pages, int sequences, const KvCache::Windows& windows) {
  return std::move(KvCache::create(config_of(), int64_t{pages} * kPage, sequences, KvType::kF16,
                                   {0, 0}, windows))
      .value();
}

// Where the entry of a slot lies in a layer; -1: nowhere.
int32_t slot_in(const KvCache& cache, int layer, int32_t slot) {
  if (!cache.has_places(layer)) return slot;
  const int32_t place = cache.windows()->place(slot / kPage);
  return place < 0 ? -1 : place * kPage + slot % kPage;
}

std::byte byte_of(uint32_t entry, uint32_t place) {
  return static_cast<std::byte>((entry * 2654435761u + place * 40503u) >> 7);
}

template <typename Fn>
void for_each_byte(KvCache& cache, int layer, int32_t slot, const Fn& fn) {
  uint32_t place = 0;
  for (const int64_t at : test::bytes_of_slot(cache.layout(), slot_in(cache, layer, slot))) {
    fn(cache.plane(layer)[at], place++);
  }
}

// In all layers, which need a place for it.
void write(KvCache& cache, int32_t slot, uint32_t entry) {
  for (int layer = 0; layer < cache.layers(); ++layer) {
    ASSERT_GE(slot_in(cache, layer, slot), 0);
    for_each_byte(cache, layer, slot,
                  [&](std::byte& byte, uint32_t place) { byte = byte_of(entry, place); });
  }
}

bool holds(KvCache& cache, int layer, int32_t slot, uint32_t entry) {
  if (slot_in(cache, layer, slot) < 0) return false;
  bool same = true;
  for_each_byte(cache, layer, slot, [&](std::byte& byte, uint32_t place) {
    same = same && byte == byte_of(entry, place);
  });
  return same;
}

// What entries hold: a function of their key and of those before.
std::vector<uint32_t> contents(const std::vector<PrefixKey>& keys) {
  std::vector<uint32_t> out;
  uint64_t hash = 14695981039346656037u;
  for (const PrefixKey key : keys) {
    hash = (hash ^ key) * 1099511628211u;
    out.push_back(static_cast<uint32_t>(hash >> 20));
  }
  return out;
}

// A sequence and what it should hold.
struct Text {
  KvCache::Id id = -1;
  std::vector<PrefixKey> keys;
};

int32_t slot_of(const KvCache& cache, KvCache::Id id, size_t position) {
  return cache.pages(id)[position / kPage] * kPage + static_cast<int32_t>(position % kPage);
}

// Empty if the next row sees in every layer what it should, in pages that nobody will take; else
// where it does not.
std::string problem(KvCache& cache, const Text& text) {
  const auto length = static_cast<int>(text.keys.size());
  if (cache.committed(text.id) != length) {
    return fmt::format("{} entries instead of {}", cache.committed(text.id), length);
  }
  const std::vector<uint32_t> expected = contents(text.keys);
  for (int layer = 0; layer < cache.layers(); ++layer) {
    const int first = layer == 0 ? 0 : std::max(0, length - kWindow + 1);
    for (auto i = static_cast<size_t>(first); i < text.keys.size(); ++i) {
      const int32_t slot = slot_of(cache, text.id, i);
      const bool safe = layer == 0 || cache.windows()->users(slot / kPage) > 0;
      if (!safe || !holds(cache, layer, slot, expected[i])) {
        return fmt::format("layer {}, position {} of {}", layer, i, length);
      }
    }
  }
  return {};
}

// Adds a chain in passes of `rows` rows.
void append(KvCache& cache, Text& text, const std::vector<PrefixKey>& keys, int rows = 40) {
  for (size_t first = 0; first < keys.size();) {
    const auto count = std::min(keys.size() - first, static_cast<size_t>(rows));
    const Status status = cache.reserve(text.id, static_cast<int>(count));
    ASSERT_TRUE(status.ok()) << status.message();
    const auto begin = keys.begin() + static_cast<std::ptrdiff_t>(first);
    const size_t before = text.keys.size();
    text.keys.insert(text.keys.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
    const std::vector<uint32_t> entries = contents(text.keys);
    for (size_t i = 0; i < count; ++i) {
      write(cache, cache.slot(text.id, static_cast<int>(i)), entries[before + i]);
    }
    cache.commit_first(text.id, static_cast<int>(count));
    first += count;
  }
}

std::vector<PrefixKey> counting(int from, int count) {
  std::vector<PrefixKey> keys;
  for (int i = 0; i < count; ++i) keys.push_back(static_cast<PrefixKey>(from + i));
  return keys;
}

std::vector<PrefixKey> joined(std::vector<PrefixKey> a, const std::vector<PrefixKey>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// gpt-oss-20b: every other layer sees 128 positions. Gemma 3 4B: five of six 1,024.
struct Shape {
  int layers, kv_heads, head_dim, window, period;
};
constexpr Shape kGptOss = {24, 8, 64, 128, 2}, kGemma = {34, 4, 256, 1024, 6};

ModelConfig config_of(const Shape& shape) {
  ModelConfig config;
  config.layers = shape.layers;
  config.heads = config.kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  for (int i = 1; i <= shape.layers; ++i) {
    config.windows.push_back(i % shape.period != 0 ? shape.window : 0);
  }
  return config;
}

TEST(WindowMemory, IsWhatCreateTakes) {
  for (const Shape& shape : {kGptOss, kGemma}) {
    const ModelConfig config = config_of(shape);
    const KvCache::Windows windows = {.rows = 512, .sequences = 2};
    const int64_t position = 2 * 2 * shape.kv_heads * shape.head_dim;
    const int64_t windowed = shape.layers - shape.layers / shape.period;
    const int64_t full = shape.layers - windowed;
    // What two sequences see, a page of slack, a page that is seen in part and one that begins; and
    // the rows of a pass.
    const int64_t places = 2 * (shape.window + 3 * kPage) + 512;
    const int64_t bytes = KvCache::bytes_needed(config, 8192, KvType::kF16, windows);
    EXPECT_EQ(bytes, (full * 8192 + windowed * places) * position);
    const auto cache = KvCache::create(config, 8192, 2, KvType::kF16, {0, 0}, windows);
    ASSERT_TRUE(cache.ok());
    EXPECT_EQ(cache->bytes(), bytes);
    EXPECT_EQ(cache->positions(), 8192);
    // Never more than as if there were no windows, and then not otherwise either.
    const auto small = KvCache::create(config, 512, 2, KvType::kF16, {0, 0}, windows);
    EXPECT_EQ(small->windows(), nullptr);
    EXPECT_EQ(small->bytes(), shape.layers * 512 * position);
    EXPECT_EQ(small->bytes(), KvCache::bytes_needed(config, 512, KvType::kF16, windows));
  }
}

// In MiB, of a sequence as long as these models take (docs/scheduling.md).
TEST(WindowMemory, FiguresOfTheDocumentation) {
  const auto mib = [](const Shape& shape, int64_t context, const KvCache::Windows& windows) {
    return KvCache::bytes_needed(config_of(shape), context + kPage, KvType::kF16, windows) >> 20;
  };
  const KvCache::Windows one = {.rows = 512, .sequences = 2}, none = {0, 0, 0};
  EXPECT_EQ(mib(kGptOss, 131072, none), 6147);
  EXPECT_EQ(mib(kGptOss, 131072, one), 3100);
  EXPECT_EQ(mib(kGemma, 131072, none), 17416);
  EXPECT_EQ(mib(kGemma, 131072, one), 2894);
}

TEST(WindowMemory, StaysAsSmallHoweverLongASequenceIs) {
  KvCache cache = cache_of(200, 1, {.rows = 40, .sequences = 1});
  const int places = cache.windows()->places();
  EXPECT_EQ(places, 3 + 2 + 1);
  Text text{*cache.open(), {}};
  for (int i = 0; i < 100; ++i) {
    append(cache, text, counting(1000 * i, 120));
    ASSERT_EQ(problem(cache, text), "");
    // Between passes: what is seen, and what a cut may bring back.
    ASSERT_GE(cache.windows()->available(), places - 4);
  }
}

TEST(Windows, APassOfManyRowsSeesAllBeforeIt) {
  KvCache cache = cache_of(40, 1, {.rows = 512, .sequences = 1});
  Text text{*cache.open(), {}};
  for (int i = 0; i < 4; ++i) {
    append(cache, text, counting(1000 * i, 512), 512);
    ASSERT_EQ(problem(cache, text), "");
  }
}

TEST(Windows, AFullCacheSaysSoAndChangesNothing) {
  KvCache cache = cache_of(100, 3, {.rows = 64, .sequences = 1});
  Text one{*cache.open(), {}}, other{*cache.open(), {}};
  append(cache, one, counting(0, 500));
  const Status status = cache.reserve(one.id, 500);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("window"));
  EXPECT_EQ(problem(cache, one), "");
  const int available = cache.windows()->available();
  const int pages = cache.free_pages();
  EXPECT_EQ(cache.reserve(other.id, kPage * (available + 1)).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(cache.windows()->available(), available);
  EXPECT_EQ(cache.free_pages(), pages);
  append(cache, one, counting(700, 64), 64);
  EXPECT_EQ(problem(cache, one), "");
  cache.close(one.id);
  EXPECT_EQ(cache.windows()->available(), cache.windows()->places());
}

TEST(Windows, TruncatesByAPageAndElseToWhatCanBeGoneOnFrom) {
  KvCache cache = cache_of(40, 1, {.rows = 40, .sequences = 1});
  for (const int by : {0, 1, 30, 63, 64}) {
    Text text{*cache.open(), {}};
    append(cache, text, counting(0, 1000));
    text.keys.resize(text.keys.size() - static_cast<size_t>(by));
    EXPECT_EQ(cache.truncate(text.id, 1000 - by), 1000 - by);
    EXPECT_EQ(problem(cache, text), "") << by;
    append(cache, text, counting(5000, 300));
    EXPECT_EQ(problem(cache, text), "") << by;
    cache.close(text.id);
  }
  Text text{*cache.open(), {}};
  append(cache, text, counting(0, 1000));
  EXPECT_EQ(cache.truncate(text.id, 500), 0);
  text.keys.clear();
  append(cache, text, counting(0, 1000));
  EXPECT_EQ(problem(cache, text), "");
}

TEST(Windows, HoldAnyLengthThatIsAssumed) {
  KvCache cache = cache_of(40, 2, {.rows = 40, .sequences = 1});
  const KvCache::Id id = *cache.open();
  for (const int length : {1000, 100, 2000, 0, 1999}) {
    ASSERT_TRUE(cache.assume(id, length).ok());
    EXPECT_EQ(cache.committed(id), length);
    ASSERT_TRUE(cache.reserve(id, 40).ok());
    EXPECT_TRUE(cache.can_begin_at(id, length));
  }
  EXPECT_EQ(cache.assume(id, 41 * kPage).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(cache.committed(id), 0);
}

// The end of a prompt, the end of a reply and a little before each.
TEST(KeptWindows, AreThereAtEnds) {
  KvCache cache = cache_of(60, 3, {.rows = 40, .sequences = 3});
  Text text{*cache.open(), {}};
  append(cache, text, counting(0, 700));
  cache.keep(text.id, text.keys);
  append(cache, text, counting(700, 300));
  cache.keep(text.id, text.keys);
  cache.close(text.id);
  for (const int length : {700, 699, 640, 1000, 999, 960}) {
    const std::vector<PrefixKey> keys = joined(counting(0, length), {9999});
    EXPECT_EQ(cache.kept(keys), length);
    Text next{*cache.open(), counting(0, length)};
    EXPECT_EQ(cache.adopt(next.id, keys), length);
    EXPECT_EQ(problem(cache, next), "") << length;
    append(cache, next, counting(5000, 70));
    EXPECT_EQ(problem(cache, next), "") << length;
    cache.close(next.id);
  }
}

// Where what a window sees is gone, the longest beginning is taken of which it is there.
TEST(KeptWindows, ElseTheLongestBeginningThatIsWhole) {
  KvCache cache = cache_of(60, 3, {.rows = 40, .sequences = 2});
  Text text{*cache.open(), {}};
  append(cache, text, counting(0, 300));
  cache.keep(text.id, text.keys);
  append(cache, text, counting(300, 700));
  cache.keep(text.id, text.keys);
  cache.close(text.id);
  const std::vector<PrefixKey> keys = joined(counting(0, 600), {9999});
  EXPECT_EQ(cache.kept_pages(keys), 600);
  EXPECT_EQ(cache.kept(keys), 300);
  Text next{*cache.open(), counting(0, 300)};
  EXPECT_EQ(cache.adopt(next.id, keys), 300);
  EXPECT_EQ(problem(cache, next), "");
  // Where it branches off is kept for the third.
  append(cache, next, counting(300, 300));
  cache.value_beginning(next.id, 600);
  EXPECT_TRUE(cache.can_begin_at(next.id, 600));
  append(cache, next, counting(5000, 400));
  EXPECT_FALSE(cache.can_begin_at(next.id, 450));
  cache.keep(next.id, next.keys);
  cache.close(next.id);
  EXPECT_EQ(cache.kept(keys), 600);
  Text third{*cache.open(), counting(0, 600)};
  EXPECT_EQ(cache.adopt(third.id, keys), 600);
  EXPECT_EQ(problem(cache, third), "");
}

TEST(KeptWindows, GoWithTheirPagesAndWhenAllIsDropped) {
  KvCache cache = cache_of(20, 3, {.rows = 40, .sequences = 3});
  Text text{*cache.open(), {}};
  append(cache, text, counting(0, 700));
  cache.keep(text.id, text.keys);
  cache.close(text.id);
  EXPECT_EQ(cache.windows()->available(), cache.windows()->places());
  cache.drop_kept();
  EXPECT_EQ(cache.kept(counting(0, 700)), 0);
  EXPECT_EQ(cache.windows()->available(), cache.windows()->places());
  // All pages are needed by another.
  Text first{*cache.open(), {}};
  append(cache, first, counting(0, 700));
  cache.keep(first.id, first.keys);
  cache.close(first.id);
  Text other{*cache.open(), {}};
  append(cache, other, counting(2000, 20 * kPage));
  EXPECT_EQ(problem(cache, other), "");
  EXPECT_EQ(cache.kept(counting(0, 700)), 0);
}

// Two sequences share a page that is no longer kept; that of a third is, and has lost its place.
TEST(KeptWindows, OfAPageThatIsSharedAreNotTakenOver) {
  KvCache cache = cache_of(40, 4, {.rows = 40, .sequences = 2});
  const std::vector<PrefixKey> keys = counting(0, 300);
  Text one{*cache.open(), {}}, two{*cache.open(), keys};
  append(cache, one, keys);
  cache.keep(one.id, keys);
  ASSERT_EQ(cache.adopt(two.id, keys), 300);
  cache.drop_kept();
  Text third{*cache.open(), {}};
  append(cache, third, keys);
  cache.keep(third.id, keys);
  const int32_t lost = cache.pages(third.id)[4];
  cache.close(third.id);
  Text other{*cache.open(), {}};
  append(cache, other, counting(3000, 8 * kPage), 8 * kPage);
  ASSERT_FALSE(cache.windows()->has(lost));
  ASSERT_EQ(cache.windows()->users(cache.pages(two.id)[3]), 2);
  cache.keep(one.id, keys);
  for (const Text* text : {&one, &two, &other}) EXPECT_EQ(problem(cache, *text), "");
  // Every page that is kept can be had again.
  const int left = cache.pages() - cache.used_pages();
  append(cache, other, counting(9000, (left - 1) * kPage));
  append(cache, two, counting(7000, 20));
  for (const Text* text : {&one, &two, &other}) EXPECT_EQ(problem(cache, *text), "");
}

// Sequences that come and go at random, in a cache that is too small for all of them. Returns the
// first thing that is not as it should be.
class Play {
 public:
  Play(uint64_t seed, int behind)
      : random_(seed),
        behind_(behind),
        cache_(cache_of(60, 6, {.rows = 50, .sequences = 3, .behind = behind})) {}

  std::string run(int steps) {
    for (int i = 0; i < steps && problem_.empty(); ++i) step();
    return problem_;
  }
  int64_t adopted() const { return adopted_; }
  int refused() const { return refused_; }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  void step() {
    const int what = below(20);
    // Pages that sequences share are then none that are kept, and others may be kept in their
    // place.
    if (below(40) == 0) cache_.drop_kept();
    if (texts_.empty() || (what == 0 && texts_.size() < 6)) {
      open();
      return check();
    }
    const size_t index = static_cast<size_t>(below(static_cast<int>(texts_.size())));
    if (what == 1) {
      cut(texts_[index]);
    } else if (what == 2) {
      keep(texts_[index]);
    } else if (what == 3 || texts_[index].keys.size() > 800) {
      keep(texts_[index]);
      close(index);
    } else {
      grow(index);
    }
    check();
  }
  void check() {
    for (const Text& text : texts_) {
      if (problem_.empty()) problem_ = problem(cache_, text);
    }
  }
  void open() {
    // One of a few beginnings, of any length, and something of its own.
    std::vector<PrefixKey> keys = counting(10000 * below(3), 1 + below(500));
    Text text{*cache_.open(), {}};
    const int kept = cache_.kept(keys);
    const int length = cache_.adopt(text.id, keys);
    if (kept != length) problem_ = "adopts otherwise than it said";
    adopted_ += length;
    keys.resize(static_cast<size_t>(length));
    text.keys = keys;
    texts_.push_back(text);
  }
  void cut(Text& text) {
    const auto length = static_cast<int>(text.keys.size());
    const int wanted = std::max(0, length - below(150));
    const int left = cache_.truncate(text.id, wanted);
    if (left > wanted || (left < wanted && wanted >= length - behind_)) problem_ = "cuts wrongly";
    text.keys.resize(static_cast<size_t>(left));
  }
  void keep(const Text& text) { cache_.keep(text.id, text.keys, below(3) != 0); }
  void close(size_t index) {
    cache_.close(texts_[index].id);
    texts_.erase(texts_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  // A tree, of which a path stays.
  void grow(size_t index) {
    Text& text = texts_[index];
    const int rows = 1 + below(50);
    if (!cache_.reserve(text.id, rows).ok()) {
      ++refused_;
      if (texts_.size() > 1) close(index);
      return;
    }
    std::vector<int32_t> path;
    std::vector<PrefixKey> keys = text.keys;
    // What would be next had its beginning gone on, most of the time.
    const bool same = below(4) != 0;
    for (int i = 0; i < rows; ++i) {
      const int32_t slot = cache_.slot(text.id, i);
      if (below(5) == 0) {
        write(cache_, slot, 77);
        continue;
      }
      const PrefixKey next =
          keys.empty() ? static_cast<PrefixKey>(10000 * below(3)) : keys.back() + 1;
      keys.push_back(same ? next : static_cast<PrefixKey>(random_()));
      write(cache_, slot, contents(keys).back());
      path.push_back(i);
    }
    text.keys = keys;
    cache_.commit(text.id, path);
  }

  std::mt19937_64 random_;
  int behind_;
  KvCache cache_;
  std::vector<Text> texts_;
  std::string problem_;
  int64_t adopted_ = 0;
  int refused_ = 0;
};

TEST(WindowPlay, EveryRowSeesItsWindow) {
  int64_t adopted = 0;
  int refused = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Play play(seed, seed % 3 == 0 ? 0 : seed % 3 == 1 ? 10 : kPage);
    ASSERT_EQ(play.run(600), "") << "seed " << seed;
    adopted += play.adopted();
    refused += play.refused();
  }
  EXPECT_GT(adopted, 0);
  EXPECT_GT(refused, 0);
}

// The planted fault: a page goes one position too early.
TEST(WindowPlay, NoticesAPageThatGoesOnePositionTooEarly) {
  for (uint64_t seed = 0; seed < 10; ++seed) EXPECT_NE(Play(seed, -1).run(600), "");
}

}  // namespace aerie::window_test

// States follow the tokens of their sequence through drafts, roll-backs, kept beginnings and
// evictions.
#include "kv/state_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "kv/kv_cache.h"

namespace aerie::state_store_test {

constexpr int kPage = kernels::kPagePositions;

// Two layers that keep states around one that does not.
ModelConfig config_of() {
  ModelConfig config;
  config.layers = 3;
  config.heads = config.kv_heads = 1;
  config.head_dim = 16;
  config.linear = {1, 1, 16, 16, 2};
  config.linear_layers = {true, false, true};
  return config;
}

// What a state has for these tokens, if each halves what was there and adds itself.
float state_of(const std::vector<PrefixKey>& tokens, size_t count) {
  float state = 0.0f;
  for (size_t i = 0; i < count; ++i)
    state = std::fma(1.0f, static_cast<float>(tokens[i]), 0.5f * state);
  return state;
}

// A model whose layers do that. Those from `here` on have their states with it, not with the cache.
class Texts {
 public:
  static constexpr int kAllHere = 3;

  Texts(int pages, int sequences, const KvCache::States& states, int here = kAllHere)
      : cache_(std::move(KvCache::create(config_of(),
                                         {.positions = int64_t{pages} * kPage,
                                          .sequences = sequences,
                                          .states = states,
                                          .planes = here < kAllHere ? KvCache::Planes::kElsewhere
                                                                    : KvCache::Planes::kHere,
                                          .here = here < kAllHere ? here : 0}))
                   .value()) {
    const StateStore& store = *cache_.states();
    for (int plane = store.planes_here(); plane < store.planes(); ++plane) {
      const auto at = static_cast<size_t>(plane);
      states_[at].resize(static_cast<size_t>(store.sizes().slots() * store.layout().state()), NAN);
      records_[at].resize(static_cast<size_t>(store.sizes().records * store.layout().record()),
                          NAN);
    }
  }

  struct Text {
    KvCache::Id id = -1;
    std::vector<PrefixKey> tokens;
  };

  KvCache& cache() { return cache_; }
  StateStore& states() { return *cache_.states(); }

  Text open(const std::vector<PrefixKey>& wanted = {}) {
    Text text;
    text.id = *cache_.open();
    const int found = cache_.adopt(text.id, wanted);
    text.tokens.assign(wanted.begin(), wanted.begin() + found);
    expect_states(text);
    return text;
  }

  // Rows for these tokens, of which those of `path` stay: a round. False if there is no room.
  bool draft(Text& text, const std::vector<PrefixKey>& tokens, const std::vector<int32_t>& path) {
    if (!cache_.reserve(text.id, static_cast<int>(tokens.size())).ok()) return false;
    settle(text);
    const int first = cache_.committed(text.id);
    const auto rows = static_cast<int>(tokens.size());
    const auto records = states().records(text.id, first, first + rows);
    for (size_t i = 0; i < tokens.size(); ++i) {
      for (int plane = 0; plane < 2; ++plane) write(plane, records[i], tokens[i]);
    }
    cache_.commit(text.id, path);
    for (const int32_t entry : path) text.tokens.push_back(tokens[static_cast<size_t>(entry)]);
    expect_states(text);
    return true;
  }

  // A piece of a prompt, with a snapshot behind `snapshot` tokens of it (0: none).
  bool read(Text& text, const std::vector<PrefixKey>& tokens, int snapshot = 0) {
    const auto rows = static_cast<int>(tokens.size());
    if (!cache_.reserve(text.id, rows, rows).ok()) return false;
    settle(text);
    const int first = cache_.committed(text.id);
    const int32_t slot = snapshot > 0 ? cache_.claim_snapshot(text.id, first + snapshot) : -1;
    for (size_t i = 0; i < tokens.size(); ++i) {
      text.tokens.push_back(tokens[i]);
      const float state = state_of(text.tokens, text.tokens.size());
      for (int plane = 0; plane < 2; ++plane) {
        value(plane, states().slot(text.id)) = state;
        if (slot >= 0 && static_cast<int>(i) + 1 == snapshot) value(plane, slot) = state;
      }
    }
    for (int plane = 0; plane < 2; ++plane) states().advance(text.id, plane, first + rows);
    cache_.commit_first(text.id, rows);
    expect_states(text);
    return true;
  }

  void keep(const Text& text) { cache_.keep(text.id, text.tokens); }
  void truncate(Text& text, int length) {
    const int left = cache_.truncate(text.id, length);
    EXPECT_LE(left, length);
    text.tokens.resize(static_cast<size_t>(left));
    expect_states(text);
  }

  // What the states hold, and the records that they will take in, are the text's.
  void expect_states(const Text& text) {
    ASSERT_EQ(cache_.committed(text.id), static_cast<int>(text.tokens.size()));
    for (int plane = 0; plane < 2; ++plane) {
      const int base = states().base(text.id, plane);
      ASSERT_LE(base, cache_.committed(text.id));
      if (base > 0) {
        EXPECT_EQ(value(plane, states().slot(text.id)),
                  state_of(text.tokens, static_cast<size_t>(base)));
      }
      const auto records = states().records(text.id, base, cache_.committed(text.id));
      for (size_t i = 0; i < records.size(); ++i) {
        const float* record = records_of(plane) + records[i] * states().layout().record();
        EXPECT_EQ(record[states().layout().changes()],
                  static_cast<float>(text.tokens[static_cast<size_t>(base) + i]));
      }
    }
  }

 private:
  float& value(int plane, int32_t slot) {
    return states_of(plane)[slot * states().layout().state()];
  }
  // Where they lie, with all moves made.
  float* states_of(int plane) {
    if (plane < states().planes_here()) return states().states(plane);
    make_moves();
    return states_[static_cast<size_t>(plane)].data();
  }
  float* records_of(int plane) {
    if (plane < states().planes_here()) return states().records(plane);
    return records_[static_cast<size_t>(plane)].data();
  }
  void make_moves() {
    const kernels::StateLayout& layout = states().layout();
    for (const StateMove& move : states().moves()) {
      for (int plane = states().planes_here(); plane < 2; ++plane) {
        if (move.kind != StateMove::Kind::kCopy && move.plane != plane) continue;
        float* all = states_[static_cast<size_t>(plane)].data();
        float* to = all + move.to * layout.state();
        if (move.kind == StateMove::Kind::kClear) {
          std::fill_n(to, layout.state(), 0.0f);
        } else if (move.kind == StateMove::Kind::kCopy) {
          std::copy_n(all + move.from * layout.state(), layout.state(), to);
        } else {
          kernels::apply_record(layout, records_of(plane) + move.from * layout.record(), to);
        }
      }
    }
    states().clear_moves();
  }
  void write(int plane, int32_t index, PrefixKey token) {
    ASSERT_GE(index, 0);
    const kernels::StateLayout& layout = states().layout();
    make_moves();  // which may read what was there
    float* record = records_of(plane) + index * layout.record();
    std::fill_n(record, layout.record(), 0.0f);
    record[0] = 1.0f;
    record[layout.changes()] = static_cast<float>(token);
    record[layout.decays()] = 0.5f;
  }
  // As a pass does: what is committed goes into the states.
  void settle(const Text& text) {
    for (int plane = 0; plane < 2; ++plane) {
      const int base = states().base(text.id, plane), end = cache_.committed(text.id);
      float* state = states_of(plane) + states().slot(text.id) * states().layout().state();
      if (base == 0) std::fill_n(state, states().layout().state(), 0.0f);
      for (const int32_t record : states().records(text.id, base, end)) {
        kernels::apply_record(states().layout(),
                              records_of(plane) + record * states().layout().record(), state);
      }
      states().advance(text.id, plane, end);
    }
  }

  KvCache cache_;
  std::array<std::vector<float>, 2> states_, records_;  // [plane], of those elsewhere
};

std::vector<PrefixKey> tokens_of(std::mt19937& random, int count) {
  std::vector<PrefixKey> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(1 + random() % 3);
  return tokens;
}

TEST(StateStore, TakesNoPlaneOfKeysForALayerThatKeepsAState) {
  const ModelConfig config = config_of();
  ModelConfig one = config;
  one.layers = 1;
  one.linear_layers.clear();
  EXPECT_EQ(KvCache::bytes_needed(config, 100), KvCache::bytes_needed(one, 100));
  // 16 x 16 and an input of 48 channels; a record holds a key, a change, a decay and an input.
  EXPECT_EQ(KvCache::state_bytes_needed(config, 3, {10, 2}),
            2 * 4 * (5 * (256 + 48) + 10 * (16 + 16 + 1 + 48)));
  // A short convolution keeps two inputs of 48 channels, and records one.
  ModelConfig plain = config;
  plain.linear = {.taps = 3, .kind = LinearKind::kShortConv, .plain = 48};
  EXPECT_EQ(KvCache::state_bytes_needed(plain, 3, {10, 2}), 2 * 4 * (5 * 2 * 48 + 10 * 48));
  Texts texts(2, 1, {8, 0});
  EXPECT_EQ(texts.cache().plane(0), nullptr);
  EXPECT_NE(texts.cache().plane(1), nullptr);
  EXPECT_EQ(texts.cache().state_plane(2), 1);
}

TEST(StateStore, RowsThatMayBeRolledBackAreLimited) {
  Texts texts(4, 2, {6, 0});
  Texts::Text a = texts.open(), b = texts.open();
  ASSERT_TRUE(texts.draft(a, {1, 2, 3, 4}, {0, 2}));
  // What a kept, two, and what b asks for.
  const Status status = texts.cache().reserve(b.id, 5);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("room for 4"), std::string::npos) << status.message();
  EXPECT_TRUE(texts.cache().reserve(b.id, 4).ok());
  texts.cache().close(b.id);
  // Those that a pass has taken in are free again, and settled rows need none.
  ASSERT_TRUE(texts.draft(a, {5}, {0}));
  ASSERT_TRUE(texts.draft(a, {1, 2, 3, 4, 1}, {0}));
  ASSERT_TRUE(texts.read(a, std::vector<PrefixKey>(100, 2)));
  EXPECT_EQ(texts.states().free_records(), 6 - 1);
}

TEST(StateStore, GoesBackOnlyWhereAStateIs) {
  Texts texts(8, 1, {16, 2});
  Texts::Text text = texts.open();
  std::mt19937 random(1);
  ASSERT_TRUE(texts.read(text, tokens_of(random, 50), 20));
  ASSERT_TRUE(texts.draft(text, {1, 2, 3}, {0, 1, 2}));
  texts.truncate(text, 52);
  EXPECT_EQ(text.tokens.size(), 52u);  // records are dropped
  texts.truncate(text, 45);
  EXPECT_EQ(text.tokens.size(), 20u);  // the snapshot
  ASSERT_TRUE(texts.read(text, tokens_of(random, 9)));
  texts.truncate(text, 10);
  EXPECT_EQ(text.tokens.size(), 0u);
  ASSERT_TRUE(texts.read(text, tokens_of(random, 9)));
}

TEST(StateStore, BeginningsAreFoundWhereThereIsASnapshot) {
  std::mt19937 random(2);
  Texts texts(20, 2, {16, 3});
  const std::vector<PrefixKey> prompt = tokens_of(random, 150);
  Texts::Text first = texts.open();
  ASSERT_TRUE(texts.read(first, prompt, 128));
  texts.keep(first);
  EXPECT_EQ(texts.cache().kept_pages(prompt), 150);
  EXPECT_EQ(texts.cache().kept(prompt), 128);
  EXPECT_EQ(texts.cache().kept({prompt.data(), 100}), 0);
  // A sequence that ends leaves its own state, records taken in.
  ASSERT_TRUE(texts.draft(first, {3, 1, 2}, {0, 2}));
  texts.keep(first);
  texts.cache().close(first.id);
  std::vector<PrefixKey> longer = prompt;
  longer.insert(longer.end(), {3, 2, 1, 1});
  EXPECT_EQ(texts.cache().kept(longer), 152);
  Texts::Text second = texts.open(longer);
  EXPECT_EQ(second.tokens.size(), 152u);
  // Not one that went on after it was kept.
  texts.keep(second);
  ASSERT_TRUE(texts.draft(second, {1}, {0}));
  texts.cache().close(second.id);
  longer.push_back(1);
  EXPECT_EQ(texts.cache().kept(longer), 152);
  texts.cache().drop_kept();
  EXPECT_EQ(texts.cache().kept(longer), 0);
  EXPECT_EQ(texts.states().snapshots(), 0);
}

// Everything at once, against lists of tokens; with the states here, elsewhere, and of a model that
// is divided.
class StatesOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(LayersHere, StatesOf, testing::Values(Texts::kAllHere, 0, 1));

TEST_P(StatesOf, FollowTheirTexts) {
  int reused = 0;
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    Texts texts(12, 3, {24, static_cast<int>(seed % 4)}, GetParam());
    std::vector<std::vector<PrefixKey>> known = {tokens_of(random, 200)};
    std::vector<Texts::Text> open;
    for (int step = 0; step < 400; ++step) {
      const auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
      if (open.size() < 3 && random() % 4 == 0) {
        std::vector<PrefixKey> wanted = known[pick(known.size())];
        wanted.resize(std::min<size_t>(wanted.size(), 40 + random() % 160));
        open.push_back(texts.open(wanted));
        reused += static_cast<int>(open.back().tokens.size());
        const auto left = wanted.size() - open.back().tokens.size();
        const std::vector<PrefixKey> rest(wanted.end() - static_cast<ptrdiff_t>(left),
                                          wanted.end());
        if (!rest.empty()) {
          texts.read(open.back(), rest,
                     random() % 2 == 0 ? 0 : 1 + static_cast<int>(pick(rest.size())));
        }
        continue;
      }
      if (open.empty()) continue;
      const size_t which = pick(open.size());
      Texts::Text& text = open[which];
      switch (random() % 6) {
        case 0:
          texts.keep(text);
          known.push_back(text.tokens);
          if (random() % 2 == 0) break;
          texts.cache().close(text.id);
          open.erase(open.begin() + static_cast<ptrdiff_t>(which));
          break;
        case 1:
          texts.truncate(text, static_cast<int>(pick(text.tokens.size() + 1)));
          break;
        default: {
          const std::vector<PrefixKey> nodes = tokens_of(random, 1 + static_cast<int>(pick(7)));
          std::vector<int32_t> path;
          for (int32_t i = 0; i < static_cast<int32_t>(nodes.size()); ++i) {
            if (random() % 2 == 0) path.push_back(i);
          }
          texts.draft(text, nodes, path);
        }
      }
    }
    for (const Texts::Text& text : open) texts.cache().close(text.id);
    EXPECT_EQ(texts.states().free_records(), 24) << seed;
  }
  EXPECT_GT(reused, 2000);
}

TEST(StateMovesTest, MayGather) {
  Texts texts(8, 2, {16, 2}, 0);
  const std::vector<PrefixKey> prompt(70, 2);
  Texts::Text first = texts.open();
  ASSERT_TRUE(texts.read(first, prompt, 64));
  texts.keep(first);
  size_t most = 0;
  for (int i = 0; i < 40'000; ++i) {
    const KvCache::Id id = *texts.cache().open();
    ASSERT_EQ(texts.cache().adopt(id, prompt), 64);
    texts.cache().close(id);
    most = std::max(most, texts.states().moves().size());
  }
  EXPECT_LE(most, StateMoves::kMany);
  const Texts::Text last = texts.open(prompt);  // expects the state
  EXPECT_EQ(last.tokens.size(), 64u);
}

// What is overwritten later is left out, but not what is read in between.
TEST(StateMovesTest, KeepsWhatIsRead) {
  using Kind = StateMove::Kind;
  StateMoves moves(2, 4);
  moves.add({Kind::kClear, 0, 0, 1});  // read by the copy
  moves.add({Kind::kApply, 1, 5, 1});  // the same
  moves.add({Kind::kCopy, 0, 1, 2});
  moves.add({Kind::kApply, 0, 6, 3});  // overwritten below
  for (size_t i = 4; i < StateMoves::kMany; ++i) moves.add({Kind::kCopy, 0, 2, 3});
  ASSERT_EQ(moves.list().size(), 4u);
  EXPECT_EQ(moves.list()[0].kind, Kind::kClear);
  EXPECT_EQ(moves.list()[1].kind, Kind::kApply);
  EXPECT_EQ(moves.list()[1].from, 5);
  EXPECT_EQ(moves.list()[2].to, 2);
  EXPECT_EQ(moves.list()[3].to, 3);
}

// Whatever moves there are: the states are those of all of them, one after the other. Numbers stand
// for states.
TEST(StateMovesTest, ComeToWhatAllOfThemDo) {
  using Kind = StateMove::Kind;
  constexpr int kPlanes = 2, kSlots = 6;
  using Numbers = std::array<std::array<uint64_t, kSlots>, kPlanes>;
  const auto make = [](const StateMove& move, Numbers& states) {
    const auto plane = static_cast<size_t>(move.plane), to = static_cast<size_t>(move.to);
    if (move.kind == Kind::kCopy) {
      for (auto& slots : states) slots[to] = slots[static_cast<size_t>(move.from)];
    } else if (move.kind == Kind::kClear) {
      states[plane][to] = 0;
    } else {
      states[plane][to] = 31 * states[plane][to] + static_cast<uint64_t>(move.from) + 1;
    }
  };
  std::mt19937 random(5);
  const auto below = [&](int n) {
    return static_cast<int32_t>(random() % static_cast<unsigned>(n));
  };
  for (int turn = 0; turn < 20; ++turn) {
    StateMoves moves(kPlanes, kSlots);
    Numbers all = {{{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12}}}, kept = all;
    // Of some turns nearly nothing is a copy, of others nearly everything.
    const int copies = 1 + turn % 4;
    for (size_t i = 0; i < StateMoves::kMany + 5; ++i) {
      const int kind = below(4 + copies);
      const bool is_copy = kind >= 4;
      const int32_t to = below(kSlots);
      const StateMove move = {is_copy     ? Kind::kCopy
                              : kind == 0 ? Kind::kClear
                                          : Kind::kApply,
                              is_copy ? 0 : below(kPlanes),
                              is_copy ? (to + 1 + below(kSlots - 1)) % kSlots : below(40), to};
      make(move, all);
      moves.add(move);
    }
    EXPECT_LT(moves.list().size(), StateMoves::kMany);
    for (const StateMove& move : moves.list()) make(move, kept);
    EXPECT_EQ(kept, all) << turn;
  }
}

}  // namespace aerie::state_store_test

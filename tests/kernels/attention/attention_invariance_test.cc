// Attention's row invariance: what a row sees decides its bits, and nothing else does.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "tests/kernels/attention/attention_testing.h"

namespace aerie::kernels::attention_invariance_test {

struct Case {
  Isa isa = Isa::kReference;
  AttentionShape shape;
};

class AttentionInvarianceTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!isa_supported(GetParam().isa)) {
      GTEST_SKIP() << "this processor lacks " << isa_name(GetParam().isa);
    }
  }
  const AttentionShape& shape() const { return GetParam().shape; }
  const Backend& backend() const { return *aerie::kernels::backend(GetParam().isa); }
  bool slow() const { return GetParam().isa == Isa::kReference || test::thinned(); }

  std::vector<float> alone(const std::vector<Token>& chain, int length) const {
    return attend_alone(backend(), shape(), {chain.begin(), chain.begin() + length});
  }
};

// A row of one of several sequences and what it gives alone.
struct Subject {
  int sequence = 0;
  int position = 0;
  std::vector<float> expected;
};

std::vector<std::vector<Token>> mixed_chains(Random& random) {
  std::vector<std::vector<Token>> chains;
  for (const int length : {1, 5, 63, 64, 65, 200, 256, 257, 300, 520}) {
    chains.push_back(random_tokens(random, length));
  }
  for (const Token odd : {kNanToken, kInfToken, kHugeToken}) {
    for (const int length : {20, 270}) {
      chains.push_back(random_tokens(random, length));
      chains.back()[static_cast<size_t>(random.below(length))] = odd;
      chains.back().back() = odd;
    }
  }
  return chains;
}

// The row in one of the ways to say the same: with more or fewer entries in its tail, and these
// where the pages say or elsewhere.
void add_somehow(AttentionBatch& batch, TestCache& cache, const std::vector<Token>& chain,
                 const Subject& subject, Random& random) {
  const int p = subject.position;
  const int committed = p - static_cast<int>(random.below(std::min(p, 20) + 1));
  const Token token = chain[static_cast<size_t>(p)];
  const int64_t way = random.below(3);
  if (way == 0) return batch.add_linear(subject.sequence, token, p, committed);
  std::vector<int32_t> tail;
  for (int at = committed; at <= p; ++at) {
    tail.push_back(cache.slot(subject.sequence, at));
    if (way == 2 && random.below(2) == 0) {
      tail.back() = cache.stray_slot();
      cache.put(tail.back(), chain[static_cast<size_t>(at)]);
    }
  }
  batch.add_tail(subject.sequence, token, committed, tail);
}

TEST_P(AttentionInvarianceTest, AnyBatchGivesTheBitsOfARowAlone) {
  Random random(60);
  const std::vector<std::vector<Token>> chains = mixed_chains(random);
  std::vector<Subject> subjects;
  for (size_t s = 0; s < chains.size(); ++s) {
    const int length = static_cast<int>(chains[s].size());
    for (const int back : {0, 1, 7, 64}) {
      if (back >= length) continue;
      subjects.push_back({static_cast<int>(s), length - 1 - back, alone(chains[s], length - back)});
    }
  }
  std::vector<int> counts = {65, 80, 130};
  for (int count = 1; count <= 64; ++count) counts.push_back(count);
  // To fill a cache takes longer than to read it: several batches share one.
  constexpr int kBatches = 8;
  std::unique_ptr<TestCache> shared;
  int batches = 0;
  for (const int count : test::sampled(counts, 3)) {
    if (batches++ % kBatches == 0) {
      shared = std::make_unique<TestCache>(shape(), 160, static_cast<uint64_t>(count));
      for (const std::vector<Token>& chain : chains) {
        shared->put_chain(shared->open(static_cast<int>(chain.size())), chain);
      }
    }
    TestCache& cache = *shared;
    std::vector<const Subject*> picks;
    picks.reserve(static_cast<size_t>(count));
    for (int r = 0; r < count; ++r) picks.push_back(&subjects[random.index(subjects.size())]);
    // Side by side, in an order of sequences that changes with the cache.
    std::stable_sort(picks.begin(), picks.end(), [&](const Subject* a, const Subject* b) {
      return cache.pages(a->sequence)[0] < cache.pages(b->sequence)[0];
    });
    AttentionBatch batch(cache);
    for (const Subject* pick : picks) {
      add_somehow(batch, cache, chains[static_cast<size_t>(pick->sequence)], *pick, random);
    }
    auto pair = static_cast<size_t>(count);
    for (const int threads : kThreadCounts) {
      if (slow() && threads != kThreadCounts[count % 4]) continue;
      if (!test::in_turn(pair++, 2)) continue;
      const std::vector<float> out = batch.run(backend(), threads);
      for (size_t r = 0; r < picks.size(); ++r) {
        ASSERT_TRUE(same_bits(row_of(out, shape(), r), picks[r]->expected))
            << "sequence " << picks[r]->sequence << " position " << picks[r]->position << " row "
            << r << " of " << count << ", " << threads << " threads";
      }
    }
  }
}

TEST_P(AttentionInvarianceTest, PageOrderAndGarbageDoNotMatter) {
  Random random(61);
  for (const int length : test::sampled({1, 17, 65, 255, 258, 700}, 3)) {
    const std::vector<Token> chain = random_tokens(random, length);
    const std::vector<float> expected = alone(chain, length);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      TestCache cache(shape(), length / kPagePositions + 10, seed);
      cache.open(100);  // takes pages first
      const int sequence = cache.open(length);
      cache.put_chain(sequence, chain);
      AttentionBatch batch(cache);
      batch.add_linear(sequence, chain.back(), length - 1, length - 1);
      EXPECT_TRUE(same_bits(batch.run(backend()), expected)) << length << " seed " << seed;
    }
  }
}

// Rows of a chain after `committed` positions: in place, in place but not said to be, elsewhere
// (with garbage where they might have been).
TEST_P(AttentionInvarianceTest, LinearRowsAndTailsAgree) {
  Random random(62);
  size_t first = 0;
  for (const int committed :
       test::sampled({0, 1, 15, 16, 40, 63, 64, 65, 200, 250, 255, 256, 257, 300, 511, 512}, 2)) {
    size_t pair = first++;
    for (const int rows : test::sampled({1, 2, 5, 17, 30, 200}, 2)) {
      if (!test::in_turn(pair++, 2)) continue;
      // One long tail will do.
      if (rows == 200 && (slow() || committed != 40)) continue;
      const int length = committed + rows;
      const std::vector<Token> chain = random_tokens(random, length);
      const std::vector<Token> prefix(chain.begin(), chain.begin() + committed);
      TestCache cache(shape(), length / kPagePositions + 4, 63);
      TestCache other(shape(), 2 * (length / kPagePositions) + 4, 64);
      const int sequence = cache.open(length), other_sequence = other.open(length);
      cache.put_chain(sequence, chain);
      other.put_chain(other_sequence, prefix);
      AttentionBatch linear(cache), said_otherwise(cache), elsewhere(other);
      std::vector<int32_t> in_place, strays;
      for (int p = committed; p < length; ++p) {
        const Token token = chain[static_cast<size_t>(p)];
        in_place.push_back(cache.slot(sequence, p));
        strays.push_back(other.stray_slot());
        other.put(strays.back(), token);
        linear.add_linear(sequence, token, p, committed);
        said_otherwise.add_tail(sequence, token, committed, in_place);
        elsewhere.add_tail(other_sequence, token, committed, strays);
      }
      const std::vector<float> expected = linear.run(backend(), 2);
      SCOPED_TRACE(testing::Message() << committed << " committed, " << rows << " rows");
      EXPECT_TRUE(same_bits(said_otherwise.run(backend(), 3), expected));
      EXPECT_TRUE(same_bits(elsewhere.run(backend(), 2), expected));
      EXPECT_TRUE(same_bits(row_of(expected, shape(), static_cast<size_t>(rows - 1)),
                            alone(chain, length)));
    }
  }
}

// Feeds the chain in pieces of `chunk` rows, each put into the cache just before it attends.
std::vector<float> prefill(const Backend& backend, const AttentionShape& shape,
                           const std::vector<Token>& chain, int chunk, int threads) {
  const int length = static_cast<int>(chain.size());
  TestCache cache(shape, length / kPagePositions + 3, static_cast<uint64_t>(chunk));
  const int sequence = cache.open(length);
  std::vector<float> all;
  for (int from = 0; from < length; from += chunk) {
    const int to = std::min(length, from + chunk);
    AttentionBatch batch(cache);
    for (int p = from; p < to; ++p) {
      cache.put(cache.slot(sequence, p), chain[static_cast<size_t>(p)]);
      batch.add_linear(sequence, chain[static_cast<size_t>(p)], p, from);
    }
    const std::vector<float> out = batch.run(backend, threads);
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

TEST_P(AttentionInvarianceTest, PromptsInPiecesOfAnySize) {
  Random random(64);
  const int length = slow() ? 270 : 600;
  const std::vector<Token> chain = random_tokens(random, length);
  const std::vector<float> expected = prefill(backend(), shape(), chain, 1, 1);
  for (const int p : {0, 16, 64, 255, 256, length - 1}) {
    EXPECT_TRUE(same_bits(row_of(expected, shape(), static_cast<size_t>(p)), alone(chain, p + 1)));
  }
  for (const int chunk : test::sampled({7, 64, 65, 100, 256, length}, 2)) {
    EXPECT_TRUE(same_bits(prefill(backend(), shape(), chain, chunk, 2), expected))
        << "pieces of " << chunk;
  }
}

// Few rows share out chunks among threads, many do not.
TEST_P(AttentionInvarianceTest, SharedOutOrNotTheSame) {
  Random random(65);
  const int length = slow() ? 300 : 800;
  const int many = static_cast<int>(AttentionWorkspace::kSplitRows) + 1;
  const std::vector<Token> chain = random_tokens(random, length);
  TestCache cache(shape(), length / kPagePositions + 3, 66);
  const int sequence = cache.open(length);
  cache.put_chain(sequence, chain);
  AttentionBatch all(cache);
  for (int p = length - many; p < length; ++p) {
    all.add_linear(sequence, chain[static_cast<size_t>(p)], p, length - many);
  }
  const std::vector<float> expected = all.run(backend(), 2);
  for (const int few : {1, 4, 25, many - 1}) {
    AttentionBatch batch(cache);
    for (int p = length - few; p < length; ++p) {
      batch.add_linear(sequence, chain[static_cast<size_t>(p)], p, length - few);
    }
    for (const int threads : test::sampled(kThreadCounts, 1)) {
      const std::span<const float> last(
          expected.end() - static_cast<ptrdiff_t>(few * shape().out_width()), expected.end());
      EXPECT_TRUE(same_bits(batch.run(backend(), threads), last))
          << few << " rows, " << threads << " threads";
    }
  }
}

// Sets that differ in their dot products alone share the cases by day where the processor has both.
bool has_case(Isa isa, size_t number) {
  constexpr std::pair<Isa, Isa> kAlike[] = {{Isa::kAvx2, Isa::kAvxVnni},
                                            {Isa::kAvx512Bw, Isa::kAvx512}};
  if (test::nightly()) return true;
  for (const auto& [plain, dots] : kAlike) {
    if (!isa_supported(plain) || !isa_supported(dots)) continue;
    if (isa == plain) return number % 2 == 0;
    if (isa == dots) return number % 2 == 1;
  }
  return true;
}

std::vector<Case> cases() {
  std::vector<Case> all = {{Isa::kReference, {4, 2, 32}},
                           {Isa::kReference, {4, 2, 32, 40, 3.0f}},
                           {Isa::kReference, {4, 2, 32, 40, 3.0f, KvType::kQ8}},
                           {Isa::kReference, {6, 2, 32, 40, 0.0f, KvType::kF16, true}},
                           {Isa::kReference, kLongKeys[1].with(KvType::kQ8)}};
  for (const Isa isa : kVectorIsas) {
    size_t number = 0;
    const auto add = [&](const AttentionShape& shape) {
      // Either set of a pair gets every type.
      for (const KvType type : kAllKvTypes) {
        if (has_case(isa, number++)) all.push_back({isa, shape.with(type)});
      }
      ++number;
    };
    // The longest takes long, and is in other tests.
    for (const AttentionShape& shape : std::span(kLongKeys).subspan(1)) add(shape);
    for (const AttentionShape& shape : {AttentionShape{9, 3, 64},
                                        {2, 2, 80},
                                        {8, 1, 32},
                                        {32, 1, 16},
                                        {60, 2, 16},
                                        {2, 2, 96},
                                        {4, 2, 32, 1},
                                        {8, 2, 16, 17, 5.0f},
                                        {6, 2, 32, 100},
                                        {4, 1, 256, 256, 50.0f},
                                        {4, 1, 512},
                                        {8, 1, 64, 128, 0.0f, KvType::kF16, true},
                                        {60, 2, 16, 0, 0.0f, KvType::kF16, true},
                                        {3, 3, 64, 300}}) {
      add(shape);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, AttentionInvarianceTest, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& param) {
                           return std::string(isa_name(param.param.isa)) + "_" +
                                  param.param.shape.name();
                         });

}  // namespace aerie::kernels::attention_invariance_test

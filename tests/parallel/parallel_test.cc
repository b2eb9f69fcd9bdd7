// However many ranks share a model, its tokens are those of one: every family, drafter and rule,
// several sequences, prefixes that are reused, sequences that make room.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "parallel/link.h"
#include "parallel/rank_message.h"
#include "parallel/split_backend.h"
#include "tests/decode/exactness.h"
#include "tests/model/families/family_goldens.h"
#include "tests/testing/nightly.h"
#include "tests/testing/thread_ranks.h"

namespace aerie::parallel_test {

constexpr int kRanks[] = {2, 3, 4};

TEST(Shares, CoverEverythingOnce) {
  for (const int64_t outputs : {1, 15, 16, 17, 96, 127, 128, 576, 49152}) {
    for (const int ranks : {1, 2, 3, 4, 7, 64}) {
      int64_t end = 0, most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const kernels::Share share = outputs_of(outputs, rank, ranks);
        EXPECT_EQ(share.begin, end);
        EXPECT_EQ(share.begin % 16, 0);
        end = share.begin + share.count;
        most = std::max<int64_t>(most, share.count);
      }
      EXPECT_EQ(end, outputs);
      EXPECT_LE(most, (outputs + ranks - 1) / ranks + 64);
    }
  }
}

TEST(Shares, HeadsGoWithTheirKeys) {
  const kernels::KvLayout whole = {5, 32, kernels::KvType::kF16, 0};
  int heads = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const kernels::KvLayout own = kernels::layout_of_rank(whole, rank, 3);
    EXPECT_EQ(own.first_head, heads);
    EXPECT_EQ(own.all_heads, 5);
    EXPECT_LT(own.page(), whole.page());
    heads += own.kv_heads;
  }
  EXPECT_EQ(heads, 5);
  EXPECT_EQ(kernels::layout_of_rank(whole, 3, 8).kv_heads, 5);
}

class RankedFamily : public testing::TestWithParam<std::string> {};

Setting setting_of(const ModelFile& file, DraftKind kind, double temperature) {
  Setting setting;
  setting.target = &file;
  setting.positions = std::min(read_model_config(file)->context, 160);
  setting.kind = kind;
  setting.chunk = 13;
  const int half = setting.positions / 6;
  setting.requests.push_back(request_with(sampling_with(temperature, Filter::kNone, 7),
                                          setting.positions - 2 * half, half));
  return setting;
}

TEST_P(RankedFamily, SaysWhatOneRankSays) {
  const auto file = open_family_model(GetParam());
  ASSERT_NE(file, nullptr);
  const std::vector<std::string> models = family_models();
  auto turn = static_cast<size_t>(std::ranges::find(models, GetParam()) - models.begin());
  const int vocab = read_model_config(*file)->vocab;
  const int step = test::nightly() ? 1 : 5;
  for (size_t i = turn % static_cast<size_t>(step); i < std::size(kDraftKinds);
       i += static_cast<size_t>(step)) {
    if (kDraftKinds[i] == DraftKind::kOtherModel && vocab != 96) continue;
    ++turn;
    Setting setting = setting_of(*file, kDraftKinds[i], turn % 2 == 0 ? 0.0 : 0.9);
    setting.ranks = kRanks[turn % std::size(kRanks)];
    setting.cache_type = turn % 5 == 0 ? kernels::KvType::kQ8 : kernels::KvType::kF16;
    SCOPED_TRACE(fmt::format("{}, {} ranks", draft_kind_name(setting.kind), setting.ranks));
    const Comparison comparison = compare_with_plain(setting);
    EXPECT_EQ(comparison.difference, "");
    EXPECT_GT(comparison.speculative.of[0].stats.drafted, 0);
  }
}

// What they take of the model that is in parts: its embedding, its output matrix, its features.
TEST_P(RankedFamily, WithHeadsToo) {
  const auto file = open_family_model(GetParam());
  ASSERT_NE(file, nullptr);
  for (const test::HeadFamily family : {test::HeadFamily::kEagle, test::HeadFamily::kMedusa}) {
    test::TinyHead head(*file, family, false);
    SCOPED_TRACE(test::head_family_name(family));
    Setting setting = setting_of(*file, DraftKind::kHeadTree, 0.9);
    setting.head = &head;
    setting.ranks = 2;
    EXPECT_EQ(compare_with_plain(setting).difference, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RankedFamily, testing::ValuesIn(family_models()),
                         family_test_name);

// All rules are lossless for a number of ranks as they are for one: the same tokens as one rank
// with the same rule and drafts.
TEST(Ranks, EveryRuleDecidesAlike) {
  for (const VerifyRule rule : kVerifyRules) {
    for (const DraftKind kind : {DraftKind::kSameModel, DraftKind::kSampledTree}) {
      if (kind == DraftKind::kSampledTree && rule == VerifyRule::kBlock) continue;
      SCOPED_TRACE(fmt::format("{} {}", verify_rule_name(rule), draft_kind_name(kind)));
      Setting setting;
      setting.kind = kind;
      setting.rule = rule;
      setting.requests.push_back(request_with(sampling_with(0.8, Filter::kNone, 3), 60));
      const Comparison one = compare_with_plain(setting);
      setting.plain = &one.plain;
      setting.ranks = 2;
      const Comparison two = compare_with_plain(setting);
      EXPECT_EQ(test::difference(one.speculative.of, two.speculative.of), "");
    }
  }
}

TEST(Ranks, SequencesThatJoinShareAndMakeRoom) {
  for (const char* name : {"llama", "gemma3", "qwen3-next", "granite-hybrid", "gpt-oss"}) {
    SCOPED_TRACE(name);
    const auto file = open_family_model(name);
    ASSERT_NE(file, nullptr);
    Setting setting;
    setting.target = file.get();
    setting.positions = std::min(read_model_config(*file)->context, 256);
    setting.kind = DraftKind::kNgramTree;
    setting.ranks = 2;
    for (test::Request request : mixed_requests(read_model_config(*file)->vocab)) {
      const auto room = static_cast<size_t>(setting.positions) / 2;
      request.prompt.resize(std::min(request.prompt.size(), room));
      request.options.max_tokens = std::min<int>(request.options.max_tokens, 40);
      setting.requests.push_back(std::move(request));
    }
    EXPECT_EQ(serve_twice(setting, 7).difference, "");
  }
}

// What docs/scaling/ranks.md says that passes send.
TEST(Ranks, SendWhatIsComputed) {
  const test::TinySpec spec;
  const test::TinyFile file(spec);
  for (const int ranks : {2, 3}) {
    std::atomic<int64_t> sent = 0;
    test::ThreadRanks group(file.gguf(), test::model_options(1), ranks,
                            [&](int, std::span<std::byte> part) { sent += std::ssize(part); });
    const auto made = make_cache(group.leader(), {.positions = 256, .sequences = 1});
    ASSERT_TRUE(made.ok());
    const ModelCache& cache = *made;
    const auto id = cache->open();
    constexpr int kRows = 5;
    ASSERT_TRUE(cache->reserve(*id, kRows).ok());
    ForwardBatch batch;
    batch.sequences.push_back({cache->pages(*id), 0, *id, 0});
    for (int r = 0; r < kRows; ++r) {
      BatchRow row;
      row.token = 7 + r;
      row.position = r;
      row.slot = cache->slot(*id, r);
      row.parent = r - 1;
      row.wants_logits = r == kRows - 1;
      batch.rows.push_back(row);
    }
    group.leader().forward(batch, *cache);
    const int64_t q = spec.heads * spec.head_dim, kv = spec.kv_heads * spec.head_dim;
    // With fewer heads of keys than ranks everybody computes all of attention.
    const int64_t attended = spec.kv_heads >= ranks ? q : 0;
    const int64_t layer = q + 2 * kv + attended + 2 * spec.hidden + 2 * spec.ffn;
    EXPECT_EQ(sent.load(), 4 * (kRows * spec.layers * layer + spec.vocab)) << ranks;
  }
}

// A bit of what one rank gives the others, in one pass.
TEST(Ranks, AWrongPartIsFound) {
  const auto file = open_family_model("llama");
  ASSERT_NE(file, nullptr);
  Setting setting = setting_of(*file, DraftKind::kNgram, 0.9);
  setting.ranks = 2;
  std::atomic<int> calls = 0;
  setting.spoil = [&](int rank, std::span<std::byte> part) {
    if (rank != 1 || part.empty() || ++calls <= 40 || calls > 50) return;
    part[3] ^= std::byte{0x40};
  };
  EXPECT_NE(compare_with_plain(setting).difference, "");
}

TEST(LinkCost, IsWhatIsComputedAndTold) {
  // Two ranks: 1 ms that everybody computes, 10 ms of parts, 80 messages, 4 MB told.
  const RankedPass pass = {2, 1e-3, 10e-3, 80, 4'000'000};
  const Link fast = {0.0, 1e18}, slow = {50e-6, 1e9};
  EXPECT_NEAR(predicted_seconds(pass, 2, fast), 11e-3, 1e-9);
  EXPECT_NEAR(predicted_seconds(pass, 4, fast), 6e-3, 1e-9);
  // Nobody to tell anything.
  EXPECT_NEAR(predicted_seconds(pass, 1, slow), 21e-3, 1e-9);
  // 4 ms of latency; half of the bytes from each of two, three quarters from each of four.
  EXPECT_NEAR(predicted_seconds(pass, 2, slow), 11e-3 + 4e-3 + 2e-3, 1e-9);
  EXPECT_NEAR(predicted_seconds(pass, 4, slow), 6e-3 + 4e-3 + 3e-3, 1e-9);
}

TEST(LinkCost, IsMeasuredByAll) {
  test::ThreadGroup group(3);
  std::vector<std::thread> others;
  for (int rank = 1; rank < 3; ++rank) {
    others.emplace_back([one = group.rank(rank)] { measure_link(*one); });
  }
  const Link link = measure_link(*group.rank(0));
  for (std::thread& other : others) other.join();
  EXPECT_GT(link.latency, 0.0);
  EXPECT_GT(link.bandwidth, 1e6);
}

// Two ranks of which one began as the other's first part came: two gathers together take two
// latencies, the second of them nothing.
class SlowGroup final : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string name(int) const override { return ""; }
  int neighbours() const override { return 1; }
  void tell(std::span<const std::byte>) override {}
  void listen(std::vector<std::byte>&) override {}
  void answer(std::span<const std::byte>) override {}
  std::vector<std::vector<std::byte>> collect() override { return {}; }
  void all_gather(std::span<const std::span<std::byte>>) override {
    if (++gathers_ % 2 != 0) return;
    const SteadyTime start = steady_now();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    longest = std::max(longest, seconds_since(start));
  }

  double longest = 0.0;  // on a machine that is busy

 private:
  int gathers_ = 0;
};

TEST(LinkCost, OfRanksThatTakeTurns) {
  SlowGroup group;
  const Link link = measure_link(group);
  EXPECT_GE(link.latency, 1.0e-3);
  EXPECT_LT(link.latency, group.longest);
}

TEST(Messages, ABatchArrivesWhole) {
  const std::vector<int32_t> pages = {3, 1, 4}, above = {7, 8};
  const std::vector<float> hidden = {1.0f, 2.0f};
  ForwardBatch batch;
  batch.sequences.push_back({pages, 150, 2, 1});
  BatchRow row;
  row.sequence = 0;
  row.token = 11;
  row.position = 152;
  row.slot = 99;
  row.above = above;
  row.wants_state = row.wants_taps = true;
  row.snapshot = 5;
  batch.rows = {row};
  batch.tap_layers = {1, 2};
  batch.skipped_layers = {3};
  batch.first_layer = 1;
  batch.end_layer = 4;
  batch.hidden = hidden;
  std::vector<std::byte> bytes;
  MessageWriter out(bytes);
  write_batch(batch, out);
  ReceivedBatch received;
  MessageReader in(bytes);
  ASSERT_TRUE(received.read(in).ok());
  EXPECT_TRUE(in.at_end());
  const ForwardBatch& copy = received.batch();
  ASSERT_EQ(copy.sequences.size(), 1u);
  EXPECT_TRUE(std::ranges::equal(copy.sequences[0].pages, pages));
  EXPECT_EQ(copy.sequences[0].committed, 150);
  EXPECT_EQ(copy.sequences[0].id, 2);
  EXPECT_EQ(copy.sequences[0].settled, 1);
  ASSERT_EQ(copy.rows.size(), 1u);
  EXPECT_EQ(copy.rows[0].token, 11);
  EXPECT_EQ(copy.rows[0].position, 152);
  EXPECT_EQ(copy.rows[0].slot, 99);
  EXPECT_EQ(copy.rows[0].parent, -1);
  EXPECT_TRUE(std::ranges::equal(copy.rows[0].above, above));
  EXPECT_FALSE(copy.rows[0].wants_logits);
  EXPECT_TRUE(copy.rows[0].wants_state);
  EXPECT_TRUE(copy.rows[0].wants_taps);
  EXPECT_EQ(copy.rows[0].snapshot, 5);
  EXPECT_EQ(copy.tap_layers, batch.tap_layers);
  EXPECT_EQ(copy.skipped_layers, batch.skipped_layers);
  EXPECT_EQ(copy.first_layer, 1);
  EXPECT_EQ(copy.end_layer, 4);
  EXPECT_TRUE(std::ranges::equal(copy.hidden, hidden));
  // What is cut short is an error.
  for (size_t length = 0; length < bytes.size(); ++length) {
    MessageReader part{std::span<const std::byte>(bytes).first(length)};
    EXPECT_FALSE(ReceivedBatch().read(part).ok()) << length;
  }
}

}  // namespace aerie::parallel_test

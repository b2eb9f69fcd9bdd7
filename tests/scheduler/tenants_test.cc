// What one tenant asks does not reach another: secrets are planted in the replies to one, and the
// other looks for them, round after round. The same code with the two joined must find them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <sstream>
#include <utility>

#include "draft/auto/choice.h"
#include "draft/auto/controller.h"
#include "draft/lookup/lookahead.h"
#include "draft/lookup/ngram.h"
#include "draft/lookup/recycling.h"
#include "draft/lookup/suffix.h"
#include "draft/network/draft_model.h"
#include "scheduler/scheduler.h"
#include "tests/decode/exactness.h"

namespace aerie::tenants_test {

// Tokens from here on are secret: nobody says them who is not told to.
constexpr int32_t kSecret = 72;
const int kVocab = test::TinySpec{}.vocab;
constexpr int kCue = 6, kSecretTokens = 12;
constexpr int kRounds = 1000;

// Allows one text alone, token by token, then anything.
class Dictation final : public TokenConstraint {
 public:
  explicit Dictation(std::vector<int32_t> text) : text_(std::move(text)) {}
  std::unique_ptr<TokenConstraint> fork() const override {
    return std::make_unique<Dictation>(*this);
  }
  void advance(int32_t) override { ++at_; }
  void mask(std::span<bool> allowed) const override {
    for (size_t i = 0; i < allowed.size(); ++i) allowed[i] = allows(static_cast<int32_t>(i));
  }
  bool allows(int32_t token) const override { return at_ >= text_.size() || token == text_[at_]; }
  std::string forced() const override { return ""; }

 private:
  std::vector<int32_t> text_;
  size_t at_ = 0;
};

// All that a client can see of its reply, but for time.
struct Seen final : JobListener {
  void on_tokens(const Sequence& sequence) override {
    if (sequence.stats.rounds == 0) began_at = steps;
    for (const EmittedToken& token : sequence.emitted) {
      what << token.id << (token.origin == TokenOrigin::kAccepted ? "a " : "  ");
    }
    if (sequence.stats.rounds > 0) {
      for (const TokenTree::Node& node : sequence.draft.nodes) {
        what << '(' << node.token << ' ' << node.parent << ' ' << node.probability << ')';
        leaks += node.token >= kSecret && node.role == NodeRole::kDraft ? 1 : 0;
      }
    }
    what << '\n';
  }
  void on_end(JobEnd end, const Status& status, const Sequence* sequence) override {
    EXPECT_EQ(end, JobEnd::kFinished) << status.message();
    if (sequence == nullptr) return;
    reused = sequence->reused;
    drafted = sequence->stats.drafted;
    tokens_per_round = sequence->stats.mean_accepted_length();
    // What is left of its own first tokens depends on how full the cache is, as load does.
    what << reused / kernels::kPagePositions << ' ' << drafted << ' ' << sequence->stats.accepted;
  }

  std::ostringstream what;
  int leaks = 0;  // drafted tokens that are secret
  int reused = 0;
  int64_t drafted = 0;
  double tokens_per_round = 0.0;
  int steps = 0;  // of the scheduler so far
  int began_at = 0;
};

enum class Kind { kSuffix, kRecycling, kLookahead, kDraftModel, kAuto, kTimedAuto };

std::vector<std::unique_ptr<Drafter>> cheap_drafters() {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(make_suffix_drafter({.offset = 4, .tree = true}).value());
  drafters.push_back(make_ngram_drafter({.num_matches = 3}).value());
  drafters.push_back(make_recycling_drafter({.vocab = kVocab, .refresh = 0}).value());
  return drafters;
}

std::unique_ptr<Drafter> make(Kind kind, const test::TinyFile& file) {
  switch (kind) {
    case Kind::kSuffix:
      return make_suffix_drafter({}).value();
    case Kind::kRecycling:
      return make_recycling_drafter({.vocab = kVocab, .refresh = 0}).value();
    case Kind::kLookahead:
      return make_lookahead_drafter({.window = 3, .ngram = 3, .guesses = 3}).value();
    case Kind::kDraftModel: {
      DraftModelOptions options;
      options.num_tokens = 4;
      options.vocab = kVocab;
      options.max_positions = kMaxPositions;
      options.max_sequences = 2;
      return make_draft_model_drafter(file.load(test::model_options()), options).value();
    }
    case Kind::kTimedAuto: {
      // By the machine's clock, with passes so short that all drafters take time beside them.
      static const PassCost cost({{1, 50e-6, 0.0}, {64, 75e-6, 0.0}});
      ControllerOptions options;
      options.max_nodes = 12;
      return make_controller(cheap_drafters(), cost, options).value();
    }
    case Kind::kAuto:
      break;
  }
  // Rows cost nothing, so that what is drafted beside a sequence leaves it all it wants; the clock
  // stands still, since time may be seen.
  static const PassCost cost({{1, 1.0, 0.0}, {1000, 1.001, 0.0}});
  ControllerOptions options;
  options.max_nodes = 12;
  options.margin = 0.0;
  options.clock = [] { return 1.0; };
  return make_controller(cheap_drafters(), cost, options).value();
}

class World {
 public:
  World(Kind kind, const std::string& a, const std::string& b)
      : tenant_a_(a),
        tenant_b_(b),
        model_(file_.load(model_options())),
        drafter_(make(kind, file_)) {
    cache_ =
        make_cache(*model_, {.positions = int64_t{400} * kernels::kPagePositions, .sequences = 4})
            .value();
    DecoderOptions decoding;
    decoding.max_positions = kMaxPositions;
    decoding.max_nodes = kind == Kind::kLookahead ? 40 : 12;
    decoding.max_rows = model_options().max_rows;
    decoding.max_logits = model_options().max_logits;
    decoding.reuse_prefixes = true;
    decoder_ = std::make_unique<Decoder>(*model_, *cache_, drafter_.get(), decoding);
    scheduler_ = std::make_unique<Scheduler>(*decoder_, *cache_, SchedulerOptions{4, 256});
  }

  // Tenant A, if it asks at all, is told a secret behind a cue, twice, and B asks what follows the
  // cue: afterwards, or in every third round at the same time.
  void round(int number, bool a_asks) {
    std::mt19937_64 random(static_cast<uint64_t>(number));
    const auto draw = [&](int least, int most, int count) {
      std::vector<int32_t> out;
      for (int i = 0; i < count; ++i) {
        out.push_back(least + static_cast<int32_t>(random() % static_cast<uint64_t>(most - least)));
      }
      return out;
    };
    const auto cue = draw(0, kSecret, kCue);
    const auto secret = draw(kSecret, kVocab, kSecretTokens);
    // Long enough for a page of the cache.
    const auto question = draw(0, kSecret, kernels::kPagePositions + 10);
    if (a_asks) {
      std::vector<int32_t> text;
      for (int i = 0; i < 2; ++i) {
        text.insert(text.end(), cue.begin(), cue.end());
        text.insert(text.end(), secret.begin(), secret.end());
      }
      SequenceOptions options;
      options.tenant = tenant_a_;
      options.sampling.seed = random();
      options.max_tokens = static_cast<int>(text.size());
      options.constraint = std::make_shared<Dictation>(text);
      add(a_, question, options);
      if (number % 3 != 0) run();
    }
    random.seed(static_cast<uint64_t>(number) + 1'000'000);
    SequenceOptions options;
    options.tenant = tenant_b_;
    options.sampling.seed = random();
    options.sampling.temperature = 1.0;
    for (int32_t token = kSecret; token < kVocab; ++token) {
      options.sampling.logit_bias.emplace_back(token, -1000.0f);
    }
    options.max_tokens = 12;
    options.trace = true;
    std::vector<int32_t> prompt = question;
    // Nothing is drafted for the first token, so that it is one of the cue.
    prompt.insert(prompt.end(), cue.begin(), cue.end() - 1);
    options.constraint = std::make_shared<Dictation>(std::vector<int32_t>{cue.back()});
    add(b_, prompt, options);
    run();
  }

  // B asks; A, if it does, has asked the very same. Tokens for each round of B.
  double same_round(int number, bool a_asks) {
    SequenceOptions options;
    options.sampling.seed = static_cast<uint64_t>(number);
    options.sampling.temperature = 1.0;
    options.max_tokens = 40;
    const auto prompt = test::random_tokens(static_cast<uint64_t>(number), 30, kVocab);
    for (const bool is_b : {false, true}) {
      if (!is_b && !a_asks) continue;
      options.tenant = is_b ? tenant_b_ : tenant_a_;
      add(is_b ? b_ : a_, prompt, options);
      run();
    }
    return b_.tokens_per_round;
  }

  std::string seen_by_b() const { return b_.what.str(); }
  const Seen& a() const { return a_; }
  const Seen& b() const { return b_; }
  int64_t drafted = 0;
  int most_reused = 0;

 private:
  static ModelOptions model_options() {
    ModelOptions options = test::model_options(1);
    options.max_positions = kMaxPositions;
    options.max_logits = 128;
    return options;
  }
  void add(Seen& seen, std::vector<int32_t> prompt, const SequenceOptions& options) {
    auto job = std::make_unique<Job>();
    job->id = next_++;
    job->prompt = std::move(prompt);
    job->options = options;
    job->listener = &seen;
    scheduler_->add(std::move(job));
  }
  void run() {
    for (int i = 0; i < 1000 && !scheduler_->idle(); ++i) {
      a_.steps = ++b_.steps;
      scheduler_->step();
    }
    ASSERT_TRUE(scheduler_->idle());
    drafted += std::exchange(b_.drafted, 0);
    most_reused = std::max(most_reused, b_.reused);
  }

  std::string tenant_a_, tenant_b_;
  test::TinyFile file_{test::TinySpec{}};
  std::unique_ptr<Model> model_;
  std::unique_ptr<Drafter> drafter_;
  ModelCache cache_;
  std::unique_ptr<Decoder> decoder_;
  Seen a_, b_;
  JobId next_ = 0;
  std::unique_ptr<Scheduler> scheduler_;  // goes first
};

class Tenants : public testing::TestWithParam<Kind> {};

// Traces, drafts, acceptance, ids and what was cached are those of a world without A.
TEST_P(Tenants, NothingOfOneReachesTheOther) {
  World with(GetParam(), "A", "B"), without(GetParam(), "A", "B");
  for (int i = 0; i < kRounds; ++i) {
    with.round(i, true);
    without.round(i, false);
    ASSERT_EQ(with.seen_by_b().size(), without.seen_by_b().size()) << "round " << i;
  }
  EXPECT_TRUE(with.seen_by_b() == without.seen_by_b());  // too long to be shown
  EXPECT_GT(with.drafted, kRounds / 4);                  // there was something to see
  EXPECT_LT(with.most_reused, kernels::kPagePositions);
  if (GetParam() != Kind::kLookahead && GetParam() != Kind::kDraftModel) {
    EXPECT_EQ(with.b().leaks, 0);
  }
}

// The fault that this test is for, planted: both are one tenant.
TEST_P(Tenants, JoinedTheyWouldBeSeen) {
  World with(GetParam(), "", ""), without(GetParam(), "", "");
  constexpr int kFew = 30;
  for (int i = 0; i < kFew; ++i) {
    with.round(i, true);
    without.round(i, false);
  }
  EXPECT_FALSE(with.seen_by_b() == without.seen_by_b());
  EXPECT_GE(with.most_reused, kernels::kPagePositions);
  const bool drafts_secrets = GetParam() != Kind::kLookahead && GetParam() != Kind::kDraftModel;
  if (drafts_secrets) {
    EXPECT_GT(with.b().leaks, kFew);
    EXPECT_EQ(without.b().leaks, 0);
  }
}

constexpr const char* kNames[] = {"Suffix", "Recycling", "Lookahead", "DraftModel", "Auto"};

INSTANTIATE_TEST_SUITE_P(Drafters, Tenants,
                         testing::Values(Kind::kSuffix, Kind::kRecycling, Kind::kLookahead,
                                         Kind::kDraftModel, Kind::kAuto),
                         [](const testing::TestParamInfo<Kind>& tested) {
                           return kNames[static_cast<int>(tested.param)];
                         });

// A prompt of another tenant is not waited for, since nothing of it will be there.
TEST(TenantsTest, DoNotWaitForEachOther) {
  for (const bool same : {true, false}) {
    World world(Kind::kSuffix, "A", same ? "A" : "B");
    world.round(0, true);  // both at once
    EXPECT_EQ(world.b().began_at > world.a().began_at, same);
  }
}

struct Mean {
  int count = 0;
  double sum = 0.0, squares = 0.0;

  void add(double x) {
    ++count;
    sum += x;
    squares += x * x;
  }
  double value() const { return sum / count; }
  double variance() const { return (squares / count - value() * value()) / (count - 1); }
};

// What B gains for each round where A asked the very same before, and the standard error of that.
struct Gain {
  double mean = 0.0;
  double error = 0.0;
};

Gain gain_of(Kind kind, int requests, const std::string& a, const std::string& b) {
  World world(kind, a, b);
  std::mt19937_64 random(7);
  Mean with, without;
  for (int i = 0; i < requests; ++i) {
    const bool a_asks = random() % 2 == 0;
    (a_asks ? with : without).add(world.same_round(i + 1, a_asks));
  }
  return {with.value() - without.value(), std::sqrt(with.variance() + without.variance())};
}

// A standard normal's two tails beyond it are 1e-6, the chance of a false alarm; the tail beyond
// the other is 1e-3, that of an oversight.
constexpr double kAlarm = 4.892, kPower = 3.09;

// With the tenants joined, B accepts more where A asked before. With tenants apart a tenth of that
// gain would be noticed at the level 1e-6 with power 0.999, and nothing is.
void expect_nothing_gained(Kind kind) {
  const Gain joined = gain_of(kind, 200, "", "");
  EXPECT_GT(joined.mean, kAlarm * joined.error);
  const Gain apart = gain_of(kind, 2000, "A", "B");
  const double noticed = (kAlarm + kPower) * apart.error;
  std::printf(
      "tokens a round that B gains where A asked: joined %.3f (+- %.3f), apart %.4f (+- "
      "%.4f), and %.4f would be noticed\n",
      joined.mean, joined.error, apart.mean, apart.error, noticed);
  EXPECT_LT(noticed, joined.mean / 10);
  EXPECT_LE(std::abs(apart.mean), kAlarm * apart.error);
}

TEST(TenantsTest, AcceptanceSaysNothingOfOthers) {
  expect_nothing_gained(Kind::kSuffix);
}

TEST(TenantsTest, NorDoesWhatTheControllerMakesOfIt) {
  expect_nothing_gained(Kind::kTimedAuto);
}

}  // namespace aerie::tenants_test

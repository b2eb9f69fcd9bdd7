// Every drafter under every rule, with and without a constraint: the first tokens are distributed
// as the target's own.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "draft/auto/combined.h"
#include "draft/auto/controller.h"
#include "draft/auto/draft_gate.h"
#include "draft/lookup/lookahead.h"
#include "draft/lookup/ngram.h"
#include "draft/lookup/prediction.h"
#include "draft/lookup/recycling.h"
#include "draft/lookup/rest.h"
#include "draft/lookup/suffix.h"
#include "draft/network/draft_model.h"
#include "draft/network/early_exit.h"
#include "draft/network/layer_skip.h"
#include "tests/decode/joint.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/sweeps.h"
#include "tests/testing/test_drafters.h"
#include "tests/testing/tiny_heads.h"
#include "verify/tree_cuts.h"

namespace aerie::lossless_test {

using test::HeadFamily;
using test::TinyFile;

constexpr int kDraftNodes = 5;
constexpr int kDraftDepth = 3;

// Two layers, so that there is one to leave out.
const TinyFile& lossless_target() {
  static const TinyFile file([] {
    test::TinySpec spec = joint_spec(1.5, 1);
    spec.layers = 2;
    return spec;
  }());
  return file;
}
const TinyFile& other_target() {
  static const TinyFile file(joint_spec(1.0, 2));
  return file;
}
Model& loaded_target() {
  static const std::unique_ptr<Model> model = lossless_target().load(joint_model_options());
  return *model;
}

// Four of six tokens may follow; which ones hangs on the last token and on how many came before.
class LastToken final : public TokenConstraint {
 public:
  std::unique_ptr<TokenConstraint> fork() const override {
    return std::make_unique<LastToken>(*this);
  }
  void advance(int32_t token) override {
    EXPECT_TRUE(allows(token));
    last_ = token;
    ++count_;
  }
  void mask(std::span<bool> allowed) const override {
    for (size_t id = 0; id < allowed.size(); ++id) allowed[id] = allows(static_cast<int32_t>(id));
  }
  bool allows(int32_t token) const override { return (token + 2 * last_ + count_) % 3 != 0; }
  std::string forced() const override { return {}; }

 private:
  int32_t last_ = 0, count_ = 0;
};

template <typename Options>
Options with_network_limits(bool tree) {
  Options options;
  options.num_tokens = tree ? kDraftNodes : kDraftDepth;
  options.num_steps = kDraftDepth;
  options.top_k = tree ? 2 : 1;
  options.max_sequences = kJointSequences;
  options.vocab = kJointVocab;
  return options;
}

DraftModelOptions model_limits(bool tree) {
  auto options = with_network_limits<DraftModelOptions>(tree);
  options.max_positions = kJointPositions;
  options.max_rows = kJointRows;
  return options;
}

std::unique_ptr<Drafter> model_drafter(bool tree) {
  return std::move(make_draft_model_drafter(other_target().load(joint_model_options()),
                                            model_limits(tree)))
      .value();
}

std::unique_ptr<Drafter> ngram_drafter() {
  NgramOptions options;
  options.num_tokens = kDraftNodes;
  options.num_matches = 2;
  return std::move(make_ngram_drafter(options)).value();
}

// Each token is followed by several.
std::vector<int32_t> joint_corpus() {
  std::vector<int32_t> corpus;
  for (int32_t i = 0; i < 60; ++i) corpus.push_back((i * i + i / 7) % kJointVocab);
  return corpus;
}

// Its draws know of no constraint.
std::unique_ptr<Drafter> sampled_tree(std::vector<int> widths) {
  test::SampledTreeOptions options;
  options.widths = std::move(widths);
  options.vocab = kJointVocab;
  options.without_replacement = true;
  return test::make_sampled_tree_drafter(other_target().load(joint_model_options()), options);
}

std::unique_ptr<Drafter> both(Combination how, std::unique_ptr<Drafter> a,
                              std::unique_ptr<Drafter> b) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::move(a));
  drafters.push_back(std::move(b));
  if (how != Combination::kAuto)
    return std::move(combine_drafters(std::move(drafters), how)).value();
  static const PassCost cost({{1, 0.01, 0.0}, {64, 0.02, 0.0}});
  ControllerOptions options;
  options.max_rows = 16;
  options.clock = [seconds = 0.0, calls = 0]() mutable {
    seconds += ++calls % 14 == 0 ? 2e-3 : 5e-5;
    return seconds;
  };
  return std::move(make_controller(std::move(drafters), cost, options)).value();
}

// Asked in most rounds; the clock does not know what was drawn.
std::unique_ptr<Drafter> gated(std::unique_ptr<Drafter> drafter) {
  static const PassCost cost({{1, 0.01, 0.0}, {64, 0.02, 0.0}});
  GateOptions options;
  options.max_rows = 16;
  options.clock = [seconds = 0.0, calls = 0]() mutable {
    seconds += ++calls % 14 == 0 ? 2e-3 : 5e-5;
    return seconds;
  };
  return make_gate(std::move(drafter), cost, options);
}

std::unique_ptr<Drafter> head_drafter(HeadFamily family, bool tree) {
  static std::map<HeadFamily, test::TinyHead> heads;
  test::TinyHead& head =
      heads.try_emplace(family, lossless_target().gguf(), family, true).first->second;
  test::TinyHeadRun run;
  run.drafter = with_network_limits<NetworkDrafterOptions>(tree);
  run.max_positions = kJointPositions;
  run.pool = joint_model_options().pool;
  return head.drafter(loaded_target(), run);
}

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Drafter>()> make;
  size_t number = 0;  // of all kinds
};

void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

template <typename Options, typename Make>
std::function<std::unique_ptr<Drafter>()> made_by(const Make& make, Options options) {
  return [=] { return std::move(make(options)).value(); };
}

std::vector<Kind> kinds() {
  SuffixOptions suffix;
  suffix.num_tokens = kDraftNodes;
  suffix.offset = 1.0;
  suffix.tree = true;
  PredictionOptions prediction;
  prediction.num_tokens = kDraftDepth;
  RecyclingOptions recycling;
  recycling.vocab = kJointVocab;
  recycling.num_tokens = kDraftNodes;
  RestOptions rest;
  rest.vocab = kJointVocab;
  rest.num_tokens = kDraftNodes;
  rest.num_steps = kDraftDepth;
  rest.min_span = 1;
  LookaheadOptions lookahead;
  lookahead.window = 2;
  lookahead.ngram = 3;
  lookahead.guesses = 2;
  lookahead.num_tokens = 6;
  EarlyExitOptions early_exit;
  early_exit.num_tokens = kDraftDepth;
  std::vector<Kind> all = {
      {"Ngram", ngram_drafter},
      {"Suffix", made_by(make_suffix_drafter, suffix)},
      {"Prediction", made_by(make_prediction_drafter, prediction)},
      {"Recycling", made_by(make_recycling_drafter, recycling)},
      {"Rest",
       made_by([](const RestOptions& o) { return make_rest_drafter(o, joint_corpus()); }, rest)},
      {"Lookahead", made_by(make_lookahead_drafter, lookahead)},
      {"EarlyExit", made_by(make_early_exit_drafter, early_exit)},
      {"LayerSkip",
       [] {
         return std::move(make_layer_skip_drafter(loaded_target(), {1}, model_limits(false)))
             .value();
       }},
      {"DraftModel", [] { return model_drafter(false); }},
      {"DraftModelTree", [] { return model_drafter(true); }},
      {"SampledChain",
       [] {
         return sampled_tree({1, 1, 1});
       }},
      {"First", [] { return both(Combination::kFirst, ngram_drafter(), model_drafter(true)); }},
      {"Merged",
       [] {
         return both(Combination::kMerge, sampled_tree({1, 1}), model_drafter(true));
       }},
      {"Auto", [] { return both(Combination::kAuto, ngram_drafter(), model_drafter(true)); }},
      {"GatedLookup", [] { return gated(ngram_drafter()); }},
      {"GatedModel", [] { return gated(model_drafter(true)); }}};
  for (const HeadFamily family : test::kHeadFamilies) {
    all.push_back({test::head_family_name(family), [=] { return head_drafter(family, true); }});
  }
  for (size_t i = 0; i < all.size(); ++i) all[i].number = i;
  return all;
}

JointSetting lossless_setting(VerifyRule rule, bool constrained) {
  JointSetting setting;
  setting.target = &lossless_target();
  setting.rule = rule;
  setting.params.temperature = 1.1;
  setting.params.top_k = 3;
  if (constrained) setting.constraint = std::make_shared<LastToken>();
  setting.tokens = 3;
  setting.further = 8;
  // A bias of so much is found with the certainty that ChiSquareSettings states.
  setting.total_variation = test::kSanitized ? 0.15 : 0.07;
  return setting;
}

class EveryDrafter : public testing::TestWithParam<std::tuple<Kind, VerifyRule>> {};

// By day the rules take turns: every drafter and every rule is tried with a constraint and without.
TEST_P(EveryDrafter, KeepsTheTargetsDistribution) {
  const auto& [kind, rule] = GetParam();
  const size_t turn = kind.number + static_cast<size_t>(rule);
  for (const bool constrained : test::in_turns({false, true}, turn)) {
    SCOPED_TRACE(constrained ? "constrained" : "any text");
    const auto drafter = kind.make();
    const JointOutcome outcome =
        compare_with_joint(lossless_setting(rule, constrained), drafter.get());
    EXPECT_FALSE(outcome.result.rejected)
        << "statistic " << outcome.result.statistic << ", p " << outcome.result.p_value << ", "
        << outcome.samples << " samples";
    // Otherwise little was tested.
    EXPECT_GT(outcome.stats.accepted, outcome.samples / 20);
    EXPECT_LT(outcome.stats.acceptance_rate(), 0.95);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryDrafter,
                         testing::Combine(testing::ValuesIn(kinds()),
                                          testing::ValuesIn(kVerifyRules)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" +
                                  std::string(verify_rule_name(std::get<1>(test.param)));
                         });

// Leaves out drafts that hold a token which the constraint forbids: a mistake where they were
// drawn.
class LeavesOutForbidden final : public test::TestDrafter {
 public:
  explicit LeavesOutForbidden(std::unique_ptr<Drafter> inner) : inner_(std::move(inner)) {}
  Status open(const DraftSequence& sequence) override {
    constraints_[sequence.id] = sequence.constraint;
    return inner_->open(sequence);
  }
  void close(SequenceId id) override { inner_->close(id); }
  Status propose(std::span<DraftRequest> requests) override {
    AERIE_RETURN_IF_ERROR(inner_->propose(requests));
    for (DraftRequest& request : requests) {
      TokenTree certain = *request.tree;
      for (TokenTree::Node& node : certain.nodes) node.proposal = nullptr;
      prune_forbidden(*constraints_.at(request.id), certain);
      if (certain.size() < request.tree->size()) request.tree->clear();
    }
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override { return inner_->observe(commits); }

 private:
  std::unique_ptr<Drafter> inner_;
  std::map<SequenceId, const TokenConstraint*> constraints_;
};

class ComparingRule : public testing::TestWithParam<VerifyRule> {};

TEST_P(ComparingRule, DraftsLeftOutForWhatIsForbiddenAreNoticed) {
  LeavesOutForbidden drafter(sampled_tree({1, 1}));
  EXPECT_TRUE(compare_with_joint(lossless_setting(GetParam(), true), &drafter).result.rejected);
}

INSTANTIATE_TEST_SUITE_P(Rules, ComparingRule,
                         testing::Values(VerifyRule::kRejection, VerifyRule::kBlock,
                                         VerifyRule::kTraversal),
                         [](const auto& rule) {
                           return std::string(verify_rule_name(rule.param));
                         });

}  // namespace aerie::lossless_test

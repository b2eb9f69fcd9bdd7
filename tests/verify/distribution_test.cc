// The served verifiers, with the request's own noise, over whole rounds: sequences are distributed
// as the target's, and the same judge refuses the procedures that are known to be wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sampling/inverse_cdf.h"
#include "tests/verify/chi_square.h"
#include "tests/verify/synthetic.h"
#include "verify/residual.h"

namespace aerie::verify_distribution_test {

constexpr int kLength = 3;
const Tokens kPrompt = {4, 1};

// One round: what is emitted after `tokens`, in a request with `params`.
using Round = std::function<Tokens(const SamplingParams& params, const Tokens& tokens)>;

size_t cell_of(const Tokens& tokens) {
  size_t cell = 0;
  for (int i = 0; i < kLength; ++i) {
    cell = cell * kTinyVocab + static_cast<size_t>(tokens[kPrompt.size() + static_cast<size_t>(i)]);
  }
  return cell;
}

// The probability of each sequence of kLength tokens after the prompt, in the order of cell_of.
std::vector<double> sequence_probabilities(const SamplingParams& params) {
  std::vector<double> cells;
  const size_t count = static_cast<size_t>(std::pow(kTinyVocab, kLength));
  for (size_t cell = 0; cell < count; ++cell) {
    Tokens path(kLength);
    for (size_t i = kLength, rest = cell; i-- > 0; rest /= kTinyVocab) {
      path[i] = static_cast<int32_t>(rest % kTinyVocab);
    }
    TinyTarget target(params, kPrompt);
    double probability = 1;
    for (size_t i = 0; i < kLength && probability > 0; ++i) {
      const std::span<const int32_t> before(path.data(), i);
      probability *= target.distribution(static_cast<int>(i) - 1, before).probability(path[i]);
    }
    cells.push_back(probability);
  }
  return cells;
}

stats::ChiSquareResult judge(const SamplingParams& settings, const Round& round) {
  stats::ChiSquareTest test(sequence_probabilities(settings));
  SamplingParams params = settings;
  for (int64_t trial = 0; trial < test.samples(); ++trial) {
    params.seed = static_cast<uint64_t>(trial);
    Tokens tokens = kPrompt;
    while (tokens.size() < kPrompt.size() + kLength) {
      const Tokens emitted = round(params, tokens);
      tokens.insert(tokens.end(), emitted.begin(), emitted.end());
    }
    test.add(cell_of(tokens));
  }
  return test.result();
}

std::vector<SamplingParams> settings() {
  std::vector<SamplingParams> all(3);
  all[0].temperature = 1.0;
  all[1].temperature = 0.7;
  all[1].top_k = 4;
  all[1].top_p = 0.9;
  all[1].repetition_penalty = 1.4;
  all[2].temperature = 1.6;
  all[2].min_p = 0.15;
  return all;
}

double draft_uniform(const SamplingParams& params, const Tokens& tokens, uint32_t node,
                     uint32_t attempt) {
  return noise_uniform({params.seed, params.choice}, NoiseStream::kDraft, tokens.size() - 1,
                       (node << 16) + attempt);
}

// A proposed chain and what its nodes point to.
struct Draft {
  TokenTree tree;
  std::vector<Distribution> proposals = std::vector<Distribution>(4);
};

// Draws the token that follows `context` (tokens and drafts), with the node's q at hand.
using Pick =
    std::function<int32_t(const Distribution& q, const std::function<double(uint32_t)>& u)>;

Draft draft_chain(const SamplingParams& params, const Tokens& tokens, int depth, const Pick& pick,
                  bool point_mass = false) {
  Draft draft;
  Tokens context = tokens;
  for (int i = 0; i < depth; ++i) {
    Distribution& q = draft.proposals[static_cast<size_t>(i)];
    tiny_proposal(context, 0.8, q);
    const auto uniform = [&](uint32_t attempt) {
      return draft_uniform(params, tokens, static_cast<uint32_t>(i), attempt);
    };
    context.push_back(pick(q, uniform));
    draft.tree.add(context.back(), i - 1, point_mass ? nullptr : &q);
  }
  return draft;
}

int32_t sample_pick(const Distribution& q, const std::function<double(uint32_t)>& uniform) {
  return inverse_cdf(q, uniform(0));
}

int32_t argmax_pick(const Distribution& q, const std::function<double(uint32_t)>&) {
  const auto best = std::max_element(q.probs.begin(), q.probs.end());
  return q.ids[static_cast<size_t>(best - q.probs.begin())];
}

// Samples three, keeps the likeliest.
int32_t best_of_three_pick(const Distribution& q, const std::function<double(uint32_t)>& uniform) {
  int32_t kept = inverse_cdf(q, uniform(0));
  for (const uint32_t attempt : {1u, 2u}) {
    const int32_t other = inverse_cdf(q, uniform(attempt));
    if (q.probability(other) > q.probability(kept)) kept = other;
  }
  return kept;
}

Tokens verified(Verifier& verifier, const SamplingParams& params, const Tokens& tokens,
                const TokenTree& tree) {
  TinyTarget target(params, tokens);
  Verdict verdict;
  verifier.verify(tree, target, {params.seed, params.choice}, tokens.size() - 1, verdict);
  Tokens emitted;
  for (const int32_t node : verdict.accepted) {
    emitted.push_back(tree.nodes[static_cast<size_t>(node)].token);
  }
  emitted.push_back(verdict.next_token);
  return emitted;
}

Round chain_round(VerifyRule rule, int depth, Pick pick, bool point_mass = false) {
  const std::shared_ptr<Verifier> verifier = make_verifier(rule);
  return [=](const SamplingParams& params, const Tokens& tokens) {
    const Draft draft = draft_chain(params, tokens, depth, pick, point_mass);
    return verified(*verifier, params, tokens, draft.tree);
  };
}

class Lossless : public testing::TestWithParam<VerifyRule> {};

TEST_P(Lossless, SampledChains) {
  for (const SamplingParams& params : settings()) {
    const auto result = judge(params, chain_round(GetParam(), 2, sample_pick));
    EXPECT_FALSE(result.rejected) << "T " << params.temperature << " p = " << result.p_value;
  }
}

TEST_P(Lossless, PointMassChains) {
  const auto result = judge(settings()[1], chain_round(GetParam(), 3, argmax_pick, true));
  EXPECT_FALSE(result.rejected) << "p = " << result.p_value;
}

INSTANTIATE_TEST_SUITE_P(Rules, Lossless, testing::ValuesIn(kVerifyRules), [](const auto& test) {
  return std::string(verify_rule_name(test.param));
});

// Exact takes any tree; a drafter that reads the target's noise changes nothing either.
TEST(Lossless, ExactOnTreesThatReadTheTargetsNoise) {
  const std::shared_ptr<Verifier> verifier = make_verifier(VerifyRule::kExact);
  const SamplingParams params = settings()[0];
  const auto result = judge(params, [&](const SamplingParams& p, const Tokens& tokens) {
    TokenTree tree;
    Distribution q;
    tiny_proposal(tokens, 1.0, q);
    // Siblings ranked by log q + the target's own noise, as the design allows.
    std::vector<std::pair<double, int32_t>> ranked;
    for (size_t i = 0; i < q.size(); ++i) {
      ranked.emplace_back(
          -std::log(q.probs[i]) - target_gumbel({p.seed, 0}, tokens.size(), q.ids[i]), q.ids[i]);
    }
    std::sort(ranked.begin(), ranked.end());
    for (int i = 0; i < 3; ++i) tree.add(ranked[static_cast<size_t>(i)].second, -1);
    tree.add(2, 0);
    tree.add(5, 0);
    return verified(*verifier, p, tokens, tree);
  });
  EXPECT_FALSE(result.rejected) << result.p_value;
}

// A tree that is drawn without replacement, three at the root and two below each, for one rule.
// `says_so`: the nodes are marked.
Round tree_round(VerifyRule rule, bool says_so) {
  const std::shared_ptr<Verifier> verifier = make_verifier(rule);
  return [=](const SamplingParams& params, const Tokens& tokens) {
    TokenTree tree;
    std::vector<Distribution> proposals(4);
    const auto grow = [&](int32_t parent, Distribution& q, int count) {
      Tokens context = tokens;
      for (const int32_t token : path_of(tree, parent)) context.push_back(token);
      tiny_proposal(context, 0.8, q);
      Distribution left = q;
      for (int i = 0; i < count; ++i) {
        const auto node = static_cast<uint32_t>(tree.size());
        const int32_t token = inverse_cdf(left, draft_uniform(params, tokens, node, 0));
        tree.add(token, parent, &q);
        tree.nodes.back().without_replacement = says_so;
        residual_distribution(left, 1.0, {token, nullptr, {}, 1.0}, left);
      }
    };
    grow(-1, proposals[3], 3);
    for (const int32_t parent : {0, 1, 2}) grow(parent, proposals[static_cast<size_t>(parent)], 2);
    return verified(*verifier, params, tokens, tree);
  };
}

class Trees : public testing::TestWithParam<VerifyRule> {};

TEST_P(Trees, WithoutReplacement) {
  for (const SamplingParams& params : settings()) {
    const auto result = judge(params, tree_round(GetParam(), true));
    EXPECT_FALSE(result.rejected) << "T " << params.temperature << " p = " << result.p_value;
  }
}

TEST_P(Trees, WithoutReplacementJudgedByTheWholeDistributionAreNoticed) {
  EXPECT_TRUE(judge(settings()[0], tree_round(GetParam(), false)).rejected);
}

INSTANTIATE_TEST_SUITE_P(Rules, Trees,
                         testing::Values(VerifyRule::kRejection, VerifyRule::kTraversal),
                         [](const auto& test) {
                           return std::string(verify_rule_name(test.param));
                         });

TEST(Wrong, ArgmaxJudgedByItsSoftmax) {
  for (const VerifyRule rule :
       {VerifyRule::kRejection, VerifyRule::kBlock, VerifyRule::kTraversal}) {
    EXPECT_TRUE(judge(settings()[0], chain_round(rule, 2, argmax_pick)).rejected);
  }
}

TEST(Wrong, TheLikeliestOfSeveralJudgedByOnesProposal) {
  for (const VerifyRule rule :
       {VerifyRule::kRejection, VerifyRule::kBlock, VerifyRule::kTraversal}) {
    EXPECT_TRUE(judge(settings()[0], chain_round(rule, 2, best_of_three_pick)).rejected);
  }
}

// Medusa 2401.10774, section 2.3.1: accept if p > min(0.09, 0.3 exp(-entropy)).
TEST(Wrong, TypicalAcceptance) {
  const auto result = judge(settings()[0], [](const SamplingParams& params, const Tokens& tokens) {
    Distribution q;
    tiny_proposal(tokens, 0.8, q);
    const int32_t token = inverse_cdf(q, draft_uniform(params, tokens, 0, 0));
    TinyTarget target(params, tokens);
    const Distribution& p = target.distribution(-1, {});
    double entropy = 0;
    for (const double x : p.probs) entropy -= x * std::log(x);
    if (p.probability(token) > std::min(0.09, 0.3 * std::exp(-entropy))) return Tokens{token};
    NoiseDice dice({params.seed, params.choice}, tokens.size() - 1);
    return Tokens{dice.draw(-1, p)};
  });
  EXPECT_TRUE(result.rejected) << result.p_value;
}

// A draft drawn with the acceptance's own number: the streams have to be apart.
TEST(Wrong, DraftAndAcceptanceShareNoise) {
  const std::shared_ptr<Verifier> verifier = make_verifier(VerifyRule::kRejection);
  const auto result = judge(settings()[0], [&](const SamplingParams& params, const Tokens& tokens) {
    Distribution q;
    tiny_proposal(tokens, 0.8, q);
    TokenTree tree;
    tree.add(inverse_cdf(q, noise_uniform({params.seed, params.choice}, NoiseStream::kAccept,
                                          tokens.size() - 1, 0)),
             -1, &q);
    return verified(*verifier, params, tokens, tree);
  });
  EXPECT_TRUE(result.rejected) << result.p_value;
}

}  // namespace aerie::verify_distribution_test

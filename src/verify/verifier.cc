#include "verify/verifier.h"

#include <cassert>
#include <iterator>

#include "base/errors.h"
#include "verify/dice.h"
#include "verify/exact.h"
#include "verify/rules.h"

namespace aerie {
namespace {

template <VerifyRule kRule, typename Judge>
class ComparingVerifier final : public Verifier {
 public:
  VerifyRule rule() const override { return kRule; }
  bool takes_trees() const override { return kRule != VerifyRule::kBlock; }
  bool accepts(const TokenTree& tree) override {
    // What NoiseDice can tell apart.
    constexpr size_t kMost = (1 << 16) - 1;
    if (tree.nodes.size() > kMost || tree.proposals.size() > kMost) return false;
    if (!takes_trees() && !tree.is_chain()) return false;
    proposals_.read(tree);
    for (int i = 0; i < proposals_.size(); ++i) {
      if (!(proposals_.proposed(i).probability() > 0)) return false;
    }
    return true;
  }
  void verify(const TokenTree& tree, TargetView& target, NoiseKey key, uint64_t root_position,
              Verdict& verdict) override {
    assert(accepts(tree));
    NoiseDice dice(key, root_position);
    judge_.judge(tree, target, dice, verdict);
  }

 private:
  ProposalLists proposals_;
  Judge judge_;
};

}  // namespace

std::string_view verify_rule_name(VerifyRule rule) {
  constexpr std::string_view kNames[] = {"exact", "rejection", "block", "traversal"};
  return kNames[static_cast<size_t>(rule)];
}

std::string verify_rule_choices() {
  std::string names;
  for (const VerifyRule rule : kVerifyRules) {
    if (rule != kVerifyRules[0]) {
      names += rule == kVerifyRules[std::size(kVerifyRules) - 1] ? " or " : ", ";
    }
    names += verify_rule_name(rule);
  }
  return names;
}

Expected<VerifyRule> verify_rule_from_name(std::string_view name) {
  for (const VerifyRule rule : kVerifyRules) {
    if (name == verify_rule_name(rule)) return rule;
  }
  return invalid_argument("no verification rule is called '{}'; there are: {}", name,
                          verify_rule_choices());
}

std::unique_ptr<Verifier> make_verifier(VerifyRule rule) {
  switch (rule) {
    case VerifyRule::kExact:
      return make_exact_verifier();
    case VerifyRule::kRejection:
      return std::make_unique<ComparingVerifier<VerifyRule::kRejection, RejectionRule>>();
    case VerifyRule::kBlock:
      return std::make_unique<ComparingVerifier<VerifyRule::kBlock, BlockRule>>();
    case VerifyRule::kTraversal:
      return std::make_unique<ComparingVerifier<VerifyRule::kTraversal, TraversalRule>>();
  }
  assert(false);
  return nullptr;
}

}  // namespace aerie

#include "verify/verifier.h"

#include <fmt/format.h>

#include <cassert>
#include <string>

#include "verify/dice.h"
#include "verify/exact.h"
#include "verify/rules.h"

namespace aerie {
namespace {

constexpr VerifyRule kRules[] = {VerifyRule::kExact, VerifyRule::kRejection, VerifyRule::kBlock};

class ExactVerifier final : public Verifier {
 public:
  VerifyRule rule() const override { return VerifyRule::kExact; }
  bool accepts(const TokenTree&) const override { return true; }
  void verify(const TokenTree& tree, TargetView& target, NoiseKey, uint64_t,
              Verdict& verdict) override {
    judge_.judge(tree, target, verdict);
  }

 private:
  ExactRule judge_;
};

template <VerifyRule kRule, typename Judge>
class ChainVerifier final : public Verifier {
 public:
  VerifyRule rule() const override { return kRule; }
  bool accepts(const TokenTree& tree) const override { return tree.is_chain(); }
  void verify(const TokenTree& tree, TargetView& target, NoiseKey key, uint64_t root_position,
              Verdict& verdict) override {
    assert(accepts(tree));
    NoiseDice dice(key, root_position);
    judge_.judge(tree, target, dice, verdict);
  }

 private:
  Judge judge_;
};

}  // namespace

std::string_view verify_rule_name(VerifyRule rule) {
  switch (rule) {
    case VerifyRule::kExact:
      return "exact";
    case VerifyRule::kRejection:
      return "rejection";
    case VerifyRule::kBlock:
      return "block";
  }
  assert(false);
  return "";
}

Expected<VerifyRule> verify_rule_from_name(std::string_view name) {
  std::string known;
  for (const VerifyRule rule : kRules) {
    if (name == verify_rule_name(rule)) return rule;
    known += (known.empty() ? "" : ", ") + std::string(verify_rule_name(rule));
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("no verification rule is called '{}'; there are: {}", name, known));
}

std::unique_ptr<Verifier> make_verifier(VerifyRule rule) {
  switch (rule) {
    case VerifyRule::kExact:
      return std::make_unique<ExactVerifier>();
    case VerifyRule::kRejection:
      return std::make_unique<ChainVerifier<VerifyRule::kRejection, RejectionRule>>();
    case VerifyRule::kBlock:
      return std::make_unique<ChainVerifier<VerifyRule::kBlock, BlockRule>>();
  }
  assert(false);
  return nullptr;
}

}  // namespace aerie

#include <gtest/gtest.h>

#include "tests/testing/allocation_counter.h"
#include "tests/verify/synthetic.h"
#include "verify/verifier.h"

namespace aerie::verify_allocation_test {

// One large distribution everywhere; a drafter's that overlaps with it.
class FixedTarget final : public TargetView {
 public:
  FixedTarget() {
    for (int32_t id = 0; id < 1000; ++id) {
      p_.ids.push_back(id);
      p_.probs.push_back(1e-3);
    }
  }
  int32_t sample(int node, std::span<const int32_t>) override { return node + 2; }
  const Distribution& distribution(int, std::span<const int32_t>) override { return p_; }

 private:
  Distribution p_;
};

TEST(Verifier, AllocatesNothingOnceWarm) {
  FixedTarget target;
  Distribution q;
  for (int32_t id = 0; id < 500; ++id) {
    q.ids.push_back(2 * id);
    q.probs.push_back(2e-3);
  }
  TokenTree sampled;
  TokenTree certain;
  for (int i = 0; i < 8; ++i) sampled.add(2 * i, i - 1, &q);
  for (int i = 0; i < 8; ++i) certain.add(i + 1, i - 1);
  TokenTree wide;  // three at each of two depths, one of them proposed twice
  for (int i = 0; i < 3; ++i) wide.add(2 * i, -1, &q);
  for (int i = 0; i < 9; ++i) wide.add(2 * (i % 3), i / 3, &q);
  for (int i = 0; i < wide.size(); ++i) {
    wide.nodes[static_cast<size_t>(i)].without_replacement = true;
    wide.proposals.push_back({i, &q, true});
  }
  wide.proposals.push_back({0, nullptr, false});
  for (const VerifyRule rule : kVerifyRules) {
    const auto verifier = make_verifier(rule);
    Verdict verdict;
    for (uint64_t seed = 0; seed < 200; ++seed) {  // long enough that every outcome was there
      verifier->verify(sampled, target, {seed, 0}, 1, verdict);
      verifier->verify(certain, target, {seed, 0}, 1, verdict);
      if (!verifier->accepts(wide)) continue;
      verifier->verify(wide, target, {seed, 0}, 1, verdict);
    }
    const int64_t before = allocations();
    for (uint64_t seed = 1000; seed < 2000; ++seed) {
      verifier->verify(sampled, target, {seed, 0}, 1, verdict);
      verifier->verify(certain, target, {seed, 0}, 1, verdict);
      if (!verifier->accepts(wide)) continue;
      verifier->verify(wide, target, {seed, 0}, 1, verdict);
    }
    EXPECT_EQ(allocations(), before) << verify_rule_name(rule);
  }
}

}  // namespace aerie::verify_allocation_test

// Which drafted tokens stand (docs/verification.md): pure functions of the tree, of the target's
// distributions at its nodes, of how the nodes were proposed and of the request's random numbers.
// Knows no model and no drafter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "core/token_tree.h"
#include "sampling/noise.h"
#include "verify/verdict.h"

namespace aerie {

enum class VerifyRule : uint8_t {
  kExact,      // the target draws its own token at each node; the walk goes on while a child has it
  kRejection,  // Leviathan et al. 2211.17192 / Chen et al. 2302.01318
  kBlock,      // Sun et al. 2403.10444
  kTraversal,  // Weng et al. 2505.12398: kBlock on trees
};
inline constexpr VerifyRule kVerifyRules[] = {VerifyRule::kExact, VerifyRule::kRejection,
                                              VerifyRule::kBlock, VerifyRule::kTraversal};
std::string_view verify_rule_name(VerifyRule rule);
// "exact, rejection, block or traversal": all of them, for messages and help.
std::string verify_rule_choices();
Expected<VerifyRule> verify_rule_from_name(std::string_view name);

// Keeps scratch memory; not thread-safe. One serves any number of sequences in turn.
class Verifier {
 public:
  virtual ~Verifier() = default;
  virtual VerifyRule rule() const = 0;
  // Whether it can judge trees. kBlock takes chains only (TokenTree::is_chain).
  virtual bool takes_trees() const = 0;
  // Whether it can judge this tree. Requires tree.is_well_formed(). Nodes that are not kDraft do
  // not matter. kExact takes any tree. The others compare with the proposals, so that each must
  // have a probability above 0; and they take less than 2^16 nodes and proposals.
  virtual bool accepts(const TokenTree& tree) = 0;
  // Requires accepts(tree). `root_position` is the absolute position of the root; together with
  // `key` it names the random numbers. Overwrites `verdict`.
  virtual void verify(const TokenTree& tree, TargetView& target, NoiseKey key,
                      uint64_t root_position, Verdict& verdict) = 0;
};

std::unique_ptr<Verifier> make_verifier(VerifyRule rule);

}  // namespace aerie

#include "verify/exact.h"

#include <vector>

namespace aerie {
namespace {

class ExactVerifier final : public Verifier {
 public:
  VerifyRule rule() const override { return VerifyRule::kExact; }
  bool takes_trees() const override { return true; }
  bool accepts(const TokenTree&) override { return true; }
  void verify(const TokenTree& tree, TargetView& target, NoiseKey, uint64_t,
              Verdict& verdict) override {
    verdict.accepted.clear();
    path_.clear();
    path_.reserve(static_cast<size_t>(tree.size()));
    int node = -1;
    verdict.bonus = false;
    for (;;) {
      if (!target.ready(node)) {
        verdict.next_token = Verdict::kNone;
        return;
      }
      const int32_t token = target.sample(node, path_);
      int child = -1;
      bool leaf = true;
      for (int i = node + 1; i < tree.size() && child < 0; ++i) {
        const TokenTree::Node& candidate = tree.nodes[static_cast<size_t>(i)];
        if (candidate.parent != node || candidate.role != NodeRole::kDraft) continue;
        leaf = false;
        if (candidate.token == token) child = i;
      }
      if (child < 0) {
        verdict.next_token = token;
        verdict.bonus = leaf;
        return;
      }
      verdict.accepted.push_back(child);
      path_.push_back(token);
      node = child;
    }
  }

 private:
  std::vector<int32_t> path_;
};

}  // namespace

std::unique_ptr<Verifier> make_exact_verifier() {
  return std::make_unique<ExactVerifier>();
}

}  // namespace aerie

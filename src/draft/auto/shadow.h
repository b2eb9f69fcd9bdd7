// A drafter on paper: what it would have brought to a sequence that another one drafts for, or
// none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "aerie/reply.h"
#include "core/token_tree.h"

namespace aerie {

// Of one sequence, under the exact rule: a node counts as accepted if the text goes on as its path
// says. A draft is made behind every real round, not behind its own, so what is counted is a sample
// of what its rounds would be.
class ShadowDraft {
 public:
  // `stats` must outlive it.
  explicit ShadowDraft(ShadowStats& stats) : stats_(stats) {}

  // A draft behind so many tokens.
  void add(const TokenTree& tree, size_t tokens, double seconds);
  // All that are known now.
  void settle(std::span<const int32_t> tokens);

 private:
  struct Pending {
    TokenTree tree;
    size_t next = 0;  // index of the token that decides next
    int node = -1;    // that the text has come to
    int depth = 0;
  };
  bool advance(Pending& draft, std::span<const int32_t> tokens);

  ShadowStats& stats_;
  std::vector<Pending> pending_;
};

}  // namespace aerie

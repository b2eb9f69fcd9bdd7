// The drafting of a round: what is asked of the drafter, whether it may stand, and room for it.
#pragma once

#include <span>
#include <vector>

#include "core/token_tree.h"
#include "decode/decoder_options.h"
#include "decode/sequence.h"
#include "draft/drafter.h"
#include "draft/tree/tree_growth.h"
#include "kv/kv_cache.h"
#include "verify/verifier.h"

namespace aerie {

// Drafter (null: nothing is drafted), verifier and cache must outlive it.
class RoundDrafts {
 public:
  RoundDrafts(Drafter* drafter, Verifier& verifier, KvCache& cache, int vocab,
              const DecoderOptions& options);

  // A tree for each of `rounds`, in a pass with these pieces; those that the rule cannot judge are
  // left empty, and so are all if the drafter fails. `ahead` as DraftRequest::ahead.
  void draft(Rounds rounds, Pieces pieces, std::span<TokenTree> trees, DraftsAhead* ahead);
  // For how many of them a draft was asked for.
  size_t asked() const { return requests_.size(); }

  // Room in the cache for the nodes; what does not fit, or what a constraint forbids, is cut.
  // Requires room for the roots and the pieces.
  void reserve(Rounds rounds, Pieces pieces, std::span<TokenTree> trees);

 private:
  int node_limit(const Sequence& sequence) const;
  int spare_rows(Rounds rounds, Pieces pieces) const;
  void cut_to_chain(TokenTree& tree);
  void cut_depth(const Sequence& sequence, TokenTree& tree);
  void check_tree(const Sequence& sequence, int max_nodes, TokenTree& tree) const;
  void make_room(const Sequence& sequence, int most, TokenTree& tree);

  Drafter* drafter_;
  Verifier& verifier_;
  KvCache& cache_;
  int vocab_;
  DecoderOptions options_;
  bool drafter_failed_ = false;  // and that was said
  std::vector<DraftRequest> requests_;
  TreeEditor editor_;
};

}  // namespace aerie

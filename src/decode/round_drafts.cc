#include "decode/round_drafts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "verify/tree_cuts.h"

namespace aerie {

int RoundDrafts::node_limit(const Sequence& sequence) const {
  const int left = sequence.options.max_tokens - sequence.generated();
  // The root's entry and the nodes' must fit, and the round emits one token more than it accepts.
  const int room = options_.max_positions - static_cast<int>(sequence.tokens.size());
  return std::max(0, std::min({options_.max_nodes, left - 1, room}));
}

RoundDrafts::RoundDrafts(Drafter* drafter, Verifier& verifier, KvCache& cache, int vocab,
                         const DecoderOptions& options)
    : drafter_(drafter), verifier_(verifier), cache_(cache), vocab_(vocab), options_(options) {
  editor_.reserve(options.max_nodes);
}

// Rows and logits of a pass that drafts may take.
int RoundDrafts::spare_rows(Rounds sequences, Pieces pieces) const {
  int rows = options_.max_rows, logits = options_.max_logits;
  for (const PromptPiece& piece : pieces) {
    rows -= piece.rows;
    logits -= logit_rows(piece);
  }
  return std::min(rows, logits) - static_cast<int>(sequences.size());
}

void RoundDrafts::draft(Rounds sequences, Pieces pieces, std::span<TokenTree> trees,
                        DraftsAhead* ahead) {
  requests_.clear();
  const int spare = spare_rows(sequences, pieces);
  for (size_t i = 0; i < sequences.size(); ++i) {
    trees[i].clear();
    const Sequence& sequence = *sequences[i];
    const int limit = std::min(node_limit(sequence), spare);
    if (drafter_ == nullptr || !sequence.options.speculate || limit <= 0) continue;
    DraftRequest& request = requests_.emplace_back();
    request.id = sequence.id;
    request.tokens = sequence.tokens;
    request.max_nodes = limit;
    request.tree = &trees[i];
    request.ahead = ahead;
    if (sequence.options.max_draft_depth > 0) request.max_depth = sequence.options.max_draft_depth;
  }
  if (requests_.empty()) return;
  const auto others = static_cast<int>(sequences.size() - requests_.size());
  int rows = others;
  for (const PromptPiece& piece : pieces) rows += piece.rows;
  for (DraftRequest& request : requests_) {
    request.other_rows = rows;
    request.other_tokens = others;
  }
  if (const Status status = drafter_->propose(requests_); !status.ok()) {
    // Then this round goes without: that one draft cannot be made is no reason to end a reply.
    if (!std::exchange(drafter_failed_, true)) {
      log(LogLevel::kWarning, fmt::format("the drafter '{}' failed, and nothing is drafted: {}",
                                          drafter_->method(), status.message()));
    }
    for (DraftRequest& request : requests_) request.tree->clear();
    return;
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& sequence = *sequences[i];
    const int limit = node_limit(sequence);
    if (!verifier_.takes_trees() && trees[i].size() <= limit) cut_to_chain(trees[i]);
    check_tree(sequence, limit, trees[i]);
    cut_depth(sequence, trees[i]);
  }
}

// For drafters that do not heed DraftRequest::max_depth, since depth costs them nothing.
void RoundDrafts::cut_depth(const Sequence& sequence, TokenTree& tree) {
  const int most = sequence.options.max_draft_depth;
  if (most <= 0 || tree.empty() || !may_be_cut(tree)) return;
  TreeLimits limits;
  limits.max_depth = most;
  editor_.keep_best(tree, limits);
}

// Many drafters make trees whatever the rule; of nodes that were not drawn the likeliest path may
// be chosen.
void RoundDrafts::cut_to_chain(TokenTree& tree) {
  if (tree.is_chain() || !tree.is_well_formed() || !may_be_cut(tree)) return;
  TreeLimits chain;
  chain.max_children = 1;
  editor_.keep_best(tree, chain);
}

// A proposal that cannot be judged is no proposal: a drafter may be wrong without harm.
void RoundDrafts::check_tree(const Sequence& sequence, int max_nodes, TokenTree& tree) const {
  if (tree.empty()) return;
  const auto known = [&](const TokenTree::Node& node) {
    return node.token >= 0 && node.token < vocab_;
  };
  if (tree.size() <= max_nodes && tree.is_well_formed() && std::ranges::all_of(tree.nodes, known) &&
      verifier_.accepts(tree)) {
    return;
  }
  log(LogLevel::kWarning,
      fmt::format("sequence {}: the drafter '{}' made a draft of {} nodes that "
                  "the rule '{}' cannot judge; it is left out",
                  sequence.id, drafter_->method(), tree.size(), verify_rule_name(options_.rule)));
  tree.clear();
}

void RoundDrafts::reserve(Rounds sequences, Pieces pieces, std::span<TokenTree> trees) {
  const int most = spare_rows(sequences, pieces) + static_cast<int>(sequences.size());
  int rows = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& sequence = *sequences[i];
    const int others = static_cast<int>(sequences.size() - i) - 1;  // at least a row for each
    make_room(sequence, most - rows - others - 1, trees[i]);
    rows += 1 + most_rows(trees[i]);
    // Not before, so that what a constraint makes of a draft has no say in whether it fits.
    if (sequence.constraint != nullptr) prune_forbidden(*sequence.constraint, trees[i]);
  }
}

// For a tree of at most `most` rows; what has no room is left out. A draft that was drawn is cut by
// how much was drawn: left out whole, it would be there or not by what was drawn.
void RoundDrafts::make_room(const Sequence& sequence, int most, TokenTree& tree) {
  const int wanted = most_rows(tree);
  const auto reserve = [&](int nodes) { return cache_.reserve(sequence.cache, 1 + nodes).ok(); };
  if (!was_drawn(tree)) {
    if (wanted > most || !reserve(wanted)) tree.clear();
    return;
  }
  int room = std::min(wanted, most);
  while (room > 0 && !reserve(room)) --room;
  cut_rows(tree, room);
}

}  // namespace aerie

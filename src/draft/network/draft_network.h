// What drafts by computing: a draft model, a trained head. It gives logits after the committed
// tokens and after nodes of the draft; which nodes are run and what is proposed is decided by
// draft/network/network_drafter.h, the same for all.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "core/best_token.h"
#include "core/forward_batch.h"
#include "draft/drafter.h"
#include "draft/tree/level_tree.h"

namespace aerie {

// Spans belong to the network and hold until its next pass.
struct DraftOutputs {
  // Of the rows that were added, in their order; each root's are DraftNetwork::depths() long. What
  // is behind the first DraftNetwork::vocab() of a row is padding.
  std::span<const float> logits;  // [rows][vocab]; empty where there is a source
  int vocab = 0;
  // What each of these rows hands to the rows below it, for networks that do; else empty.
  std::span<const float> hidden;  // [rows][width]
  int rows = 0;
  // Logits come when they are asked for; DraftNetwork::status() says whether they could.
  LogitSource* source = nullptr;
  TopTokens top = {};  // where the network has looked for them, among DraftNetwork::vocab() logits

  std::span<const float> logits_of(int row) const {
    if (source != nullptr) return source->fetch(row);
    return logits.subspan(static_cast<size_t>(row) * static_cast<size_t>(vocab),
                          static_cast<size_t>(vocab));
  }
};

// A sequence has a place, 0 <= place < sequences, from open() to close(). For each round: begin(),
// for each sequence start(), then passes (add_root() for every sequence in the first, add_node() in
// further ones, run()), then observe(). Rounds may be left out, observe() may not. Not thread-safe.
// Allocates in open() alone, once warmed up.
class DraftNetwork {
 public:
  virtual ~DraftNetwork() = default;

  virtual const DrafterNeeds& needs() const = 0;

  virtual int vocab() const = 0;  // logits of a row
  // The target's ids of the logits, ascending, [vocab()]; empty: logit i is token i.
  virtual std::span<const int32_t> target_ids() const { return {}; }
  // Whether a token can be handed to add_node().
  virtual bool reads(int32_t /*token*/) const { return true; }

  // How many depths the root's row serves: 1, and nodes have to be run for what follows them; or
  // more for a network that drafts them all at once, each depth's logits whatever the path to it.
  // Such a network never sees add_node().
  virtual int depths() const { return 1; }

  // Whether the logits of a depth hang on the tokens before it in the draft, too. follow() says
  // what becomes of the ones of `row` of `outputs`, the last run's, of one of these networks,
  // behind `before`, the root and the tokens of a path: in place. Returns how likely the target is
  // to accept what is drafted of them, given the path; < 0: it is not known.
  virtual bool follows() const { return false; }
  virtual float follow(const DraftOutputs& /*outputs*/, int /*row*/,
                       std::span<const int32_t> /*before*/, std::span<float> /*logits*/) {
    return -1.0f;
  }

  virtual Status open(int place, const DraftSequence& sequence) = 0;
  virtual void close(int place) = 0;

  // As Drafter's.
  virtual int reusable(std::span<const int32_t> tokens, std::string_view tenant) const = 0;
  virtual void keep(int place, std::span<const int32_t> tokens) = 0;
  // Whether what the sequence there reads will be reusable() once it is kept; -1: of one that it
  // does not read.
  virtual bool will_share(int /*place*/) const { return true; }

  // A call for drafts begins: what start() reads for all of them is no more than a pass. `ahead`:
  // who hears of them while they are computed, where they are (DraftRequest::ahead); null: nobody.
  virtual void begin(DraftsAhead* /*ahead*/) {}
  // Begins a draft behind `tokens` (Drafter's, the last is the root), which stay where they are
  // until observe(), of at most `run` nodes that are run, the deepest at `depth`. Reads what is too
  // much for a pass with others. The depth that can be had, which may be less; 0: none, or none
  // before unread() tokens more are read.
  virtual int start(int place, std::span<const int32_t> tokens, int run, int depth) = 0;

  virtual int unread(int /*place*/) const { return 0; }

  // Whether expect_chain() makes drafts faster.
  virtual bool runs_ahead() const { return false; }
  // A hint, behind start(): the draft will be a chain of the best logits' tokens, for which `rows`
  // rows are asked for, the root's included, one a run. It may end early or go another way all the
  // same.
  virtual void expect_chain(int /*place*/, int /*rows*/) {}

  // The rows that add_root() will add.
  virtual int root_rows(int place) const = 0;
  // For what follows the root.
  virtual void add_root(int place) = 0;
  // For what follows a node of the draft's tree whose parent was run or is the root. One row. All
  // nodes of a pass are at one depth, and a sequence's come one after the other.
  virtual void add_node(int place, const LevelTree& tree, int32_t node) = 0;
  // Runs the rows that were added since the last run.
  virtual DraftOutputs run() = 0;
  // Of the passes since begin(), those of start() included: not ok if one has failed. Then its
  // outputs are of no use, and what the network holds of sequences it reads again.
  virtual Status status() const { return {}; }

  // Of a target pass. `path`: the nodes of the draft, from a child of the root on, whose tokens
  // were committed behind the tokens of start(); the last may not have been run. Empty if there was
  // no draft.
  virtual void observe(int place, const DraftCommit& commit, std::span<const int32_t> path) = 0;

  // In debug builds, after observe(): whether what is kept is in step with the commit.
  virtual bool in_step(int /*place*/, const DraftCommit& /*commit*/) const { return true; }
};

}  // namespace aerie

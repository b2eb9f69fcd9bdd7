// The one interface of all drafters. A drafter can be wrong, slow or empty; it can never change the
// output, since the verifier keeps only what the target would have produced.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/constraint.h"
#include "core/forward_batch.h"
#include "core/found_tokens.h"
#include "core/sampling_params.h"
#include "core/token_tree.h"
#include "draft/target_access.h"

namespace aerie {

struct ShadowStats;

// What a drafter wants of the target's forward passes, and whether others have to allow for its
// noise.
struct DrafterNeeds {
  std::vector<int32_t> tap_layers;  // as in ForwardBatch; empty: no taps
  int top_tokens = 0;               // the likeliest so many behind rows of a round (DraftCommit)
  int top_refusals = 0;             // of how many refused nodes too
  bool knows_noise = false;    // estimates allow for it themselves, where they may (DraftNoise)
  bool pays_by_level = false;  // drafts a level at a time, and goes by DraftRequest::least_path
};

// How proposals will be judged, which decides what a drafter may look at.
enum class DraftNoise : uint8_t {
  // The exact rule: the output does not depend on the proposal, so a drafter may read the target's
  // noise. Every node is a point mass.
  kTarget,
  // The rules that compare with the proposal: sampled nodes draw from NoiseStream::kDraft, with the
  // seed and choice of DraftSequence::sampling as key, and say from which distribution
  // (core/token_tree.h says what the rules rest on).
  kOwn,
};

struct DraftSequence {
  SequenceId id = 0;
  // Whose text it is: what is learnt of it serves sequences of the same tenant alone. Holds during
  // open().
  std::string_view tenant = {};
  // What is read and written of it may be kept for training.
  bool learn = false;
  // Which drafter, of one that is a choice among several (draft/auto/choice.h).
  int drafter = 0;
  // Of the same choice, one that drafts on paper, and what of that is counted, which outlives the
  // sequence; negative: none. Then `drafter` may be negative, too: nothing is drafted in earnest.
  int shadow = -1;
  ShadowStats* shadow_stats = nullptr;
  SamplingParams sampling;
  DraftNoise noise = DraftNoise::kTarget;
  // Whether the rule takes trees. If not, the likeliest path of a tree of point masses is judged,
  // and other trees are left out: what is drawn has to be a chain whatever is drawn.
  bool trees = true;
  int max_tokens = 0;  // the sequence never grows beyond this many tokens
  // The tokens that are known. observe() will tell of all of them but the first `reused`, which the
  // target does not read again: no more than Drafter::reusable() of them, but for a drafter that is
  // opened in the middle of a sequence, which drafts as well as it can. Hold during open().
  std::span<const int32_t> tokens;
  int reused = 0;
  // What the caller thinks the output will be, without the prompt, in ids of the target's
  // vocabulary; empty: no idea. A drafter that uses it copies it in open().
  std::span<const int32_t> prediction;
  // What the output must keep to, in the state behind the tokens that are known; null: any text.
  // Outlives the sequence, and is to be forked. What is drafted against it never stands.
  const TokenConstraint* constraint = nullptr;
  // The target, to be run in propose(); outlives the sequence.
  TargetAccess* target = nullptr;
};

// Hears of drafts whose tokens a device is about to find, so that the pass that verifies them can
// be put behind them.
class DraftsAhead {
 public:
  // A draft that will be a chain of so many nodes, and the rows behind which their tokens are
  // found, from the root's child down.
  struct Chain {
    SequenceId id = 0;
    std::span<const int32_t> rows;
  };

  virtual ~DraftsAhead() = default;
  // In Drafter::propose(), at most once. The drafts may turn out otherwise all the same.
  virtual void expect(std::span<const Chain> chains, const FoundTokens& found) = 0;
  // Whether that has begun a pass: what is left out of these drafts then costs a pass more.
  virtual bool has_begun() const = 0;
};

struct DraftRequest {
  SequenceId id = 0;
  // All committed tokens from position 0; the last is the root. Only grows from call to call.
  std::span<const int32_t> tokens;
  int max_nodes = 0;          // no more than this many nodes, and no deeper
  TokenTree* tree = nullptr;  // out; arrives cleared
  // No node below this depth will be of use; drafters that pay for depth go no deeper.
  int max_depth = std::numeric_limits<int>::max();
  // A further level is worth its time behind nodes whose paths are at least that likely, by the
  // drafter's own estimates.
  double least_path = 0.0;
  // What the pass has whatever is drafted, beside the roots of the requests: rows, and how many of
  // them bring a token. The same for all requests of a call.
  int other_rows = 0;
  int other_tokens = 0;
  // Who hears of drafts early. Null: nobody, as where what is verified is chosen once they are
  // there. The same for all requests of a call.
  DraftsAhead* ahead = nullptr;
  // Out, arrives 0: tokens that the drafter has yet to read before it drafts for this sequence. It
  // reads no more in a call than others can wait for.
  int unread = 0;
};

// What a target pass settled: a part of the prompt, or a round.
struct DraftCommit {
  SequenceId id = 0;
  // All tokens known so far: the whole prompt while it is being read; afterwards as in the next
  // DraftRequest, with the new root as the last.
  std::span<const int32_t> tokens;
  // Positions [first, first + rows) are now in the target's cache: rows of the prompt, or the old
  // root and the accepted nodes.
  int first = 0;
  int rows = 0;
  // A round: the tree that was verified, which may hold less or more than the drafter proposed, and
  // its accepted nodes from the root's child down. Null and empty for the prompt.
  const TokenTree* tree = nullptr;
  std::span<const int32_t> accepted;
  // A round, if needs() asks for top tokens: [1 + tree's nodes][top_tokens], the target's likeliest
  // tokens after the root, after nodes that were accepted or are kProbe and after the first
  // top_refusals others that are kDraft, likeliest first, by its logits alone; -1 after the rest.
  // There may be more of them than this drafter asked for.
  std::span<const int32_t> top_tokens;
  std::span<const float> taps;  // [rows][tap_layers][hidden], if needs() names layers

  // Those after a node, or after the root (-1). Requires a round with top tokens.
  std::span<const int32_t> top_tokens_after(int node) const {
    const size_t each = top_tokens.size() / static_cast<size_t>(tree->size() + 1);
    return top_tokens.subspan(static_cast<size_t>(node + 1) * each, each);
  }
};

// Not thread-safe. A sequence is open()ed once, then propose() and observe() alternate for it in
// any batches (propose() may be left out), then close(). Nothing is allocated in propose() and
// observe() once warmed up.
class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual std::string_view method() const = 0;  // "ngram", "draft_model": the configuration's name
  virtual const DrafterNeeds& needs() const = 0;

  virtual Status open(const DraftSequence& sequence) = 0;
  virtual void close(SequenceId id) = 0;

  // How many of a new sequence's first tokens observe() need not tell of: those that it can make up
  // for by itself, or has kept from another sequence that began alike. Less than tokens.size().
  // `drafter` and `tenant` as in DraftSequence.
  virtual int reusable(std::span<const int32_t> tokens, int /*drafter*/,
                       std::string_view /*tenant*/) const {
    return static_cast<int>(tokens.size()) - 1;
  }
  // Whether a new sequence of that drafter and tenant, which begins with the first `length` tokens
  // of the tenant's `reader`, will find them reusable() once that one has read and kept them. This
  // drafter need not know the reader, which the target reads.
  virtual bool will_share(SequenceId /*reader*/, int /*length*/, int /*drafter*/,
                          std::string_view /*tenant*/) const {
    return true;
  }
  // What was read of an open sequence with these tokens may be of use for others.
  virtual void keep(SequenceId /*id*/, std::span<const int32_t> /*tokens*/) {}
  // Drops all that was learned from sequences that are closed, as if the drafter were new. Requires
  // that none is open.
  virtual void forget() {}

  // Fills every request's tree. An empty tree means no idea, or that it has yet to read.
  virtual Status propose(std::span<DraftRequest> requests) = 0;
  // Hears of every pass that committed rows: the prompt's, then one after each propose().
  virtual Status observe(std::span<const DraftCommit> commits) = 0;
};

}  // namespace aerie

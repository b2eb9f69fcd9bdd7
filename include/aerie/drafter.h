// A drafter of a program's own: it proposes, the engine verifies. Whatever it proposes, and
// whatever goes wrong in it, the tokens of a reply stay those of plain decoding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "aerie/status.h"

namespace aerie {

// A token of a draft tree. A chain has each node's index less one as its parent.
struct ProposedNode {
  int32_t token = 0;
  int32_t parent = -1;  // index of an earlier node; -1: the newest token of the text
  // The drafter's estimate that the path to this node is what the model would write; above 0, at
  // most 1. Decides whether a draft pays, never what is kept. 0: no idea.
  float probability = 0.0f;
};

// What a drafter is asked in a round, of one sequence. The spans hold during the call alone.
struct DraftQuery {
  uint64_t sequence = 0;            // the same number until close()
  std::span<const int32_t> tokens;  // prompt and reply so far; only grows from call to call
  int max_nodes = 0;                // more are left out
  std::vector<ProposedNode> draft;  // out; arrives empty, which means no idea
};

// What became of a round, or of a piece of a prompt, of one sequence.
struct DraftOutcome {
  uint64_t sequence = 0;
  std::span<const int32_t> tokens;  // as in the next DraftQuery; the whole prompt while it is read
  std::span<const int32_t> accepted;  // the drafted tokens that the model wrote, too
  int drafted = 0;                    // nodes that were verified; 0 for a prompt
};

// Opened with OpenOptions::drafter under the method name "custom". The engine calls it in the
// thread that decodes, one call at a time, and all wait for it. A sequence is opened, then asked
// and told about in any batches, then closed.
//
// After an error of any call the sequences that it was about are decoded plainly to their ends; the
// first message is logged. A node that cannot be (a token outside the vocabulary, a parent that
// does not come before it) is such an error.
class CustomDrafter {
 public:
  virtual ~CustomDrafter() = default;

  virtual Status open(uint64_t /*sequence*/, std::span<const int32_t> /*tokens*/) { return {}; }
  virtual void close(uint64_t /*sequence*/) {}
  virtual Status propose(std::span<DraftQuery> queries) = 0;
  virtual Status observe(std::span<const DraftOutcome> /*outcomes*/) { return {}; }
};

}  // namespace aerie

// What a drafter may run of the target itself, within propose().
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "core/forward_batch.h"
#include "core/model_config.h"

namespace aerie {

using SequenceId = int32_t;

// The next token of a chain of drafted tokens: depth 0 is the root, depth d follows the one of
// depth d - 1, which was run in this round.
struct ExitRow {
  SequenceId id = 0;
  int depth = 0;
  int32_t token = 0;
};

// Runs of one round, in the target's own cache: each writes behind what is committed and commits
// nothing. Not thread-safe.
class TargetAccess {
 public:
  virtual ~TargetAccess() = default;

  virtual const ModelConfig& config() const = 0;

  // Makes room for a chain of so many rows, the root's counted. False if there is none.
  virtual bool reserve(SequenceId id, int rows) = 0;

  // Runs layers [0, end_layer), the final norm and the head over the rows, at most one of each
  // sequence of the round, and returns their logits in that order; they hold until the next run. If
  // the sequence's tree begins with its chain (node i - 1 with the token of depth i), verification
  // goes on from here instead of running these layers again. What was run at that depth or deeper
  // is forgotten, and so is the whole chain if the pass fails. Requires room, and 0 < end_layer <
  // layers, the same along a chain.
  virtual ForwardOutputs run_first_layers(int end_layer, std::span<const ExitRow> rows) = 0;
};

}  // namespace aerie

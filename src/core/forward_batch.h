// One forward pass: rows of any mix of sequences. A prefill chunk is a chain of rows, plain
// decoding is one row, a verify pass is the root's row plus one row for each node of the draft
// tree.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/best_token.h"

namespace aerie {

// The committed part of a sequence that rows see: positions 0 .. committed - 1, found through the
// page table (page of position p is pages[p / page length]).
struct BatchSequence {
  std::span<const int32_t> pages;
  int32_t committed = 0;
  // The cache's number for it: where layers keep states, these are found by it.
  int32_t id = -1;
  // So many of its rows, from the first, are a chain that will be committed whatever it gives, and
  // are all of its rows, unless it is 0: layers that keep states then roll nothing back.
  int32_t settled = 0;
};

// One token. It sees its sequence's committed prefix, then its ancestors in earlier passes
// (`above`) and among the batch's rows, then itself. Its position is committed + (number of
// ancestors). Its key and value go to `slot`.
struct BatchRow {
  int32_t sequence = 0;  // index into ForwardBatch::sequences
  int32_t token = 0;
  int32_t position = 0;
  int32_t slot = 0;     // cache slot reserved for it: page * page length + offset
  int32_t parent = -1;  // index of an earlier row of the same sequence; -1: none in this batch
  // Where parent is -1: slots of the ancestors that earlier passes computed and that are not
  // committed, from the prefix down. Must hold until the pass is over.
  std::span<const int32_t> above;
  bool wants_logits = false;
  bool wants_state = false;  // of as many rows as may want logits
  bool wants_taps = false;
  int32_t snapshot = -1;  // where a copy of the state after a settled row goes; -1: nowhere
};

struct ForwardBatch {
  static constexpr int kAllLayers = -1;

  std::vector<BatchSequence> sequences;
  std::vector<BatchRow> rows;
  // Layers whose input (the residual stream entering layer l; l = layers is the stream after the
  // last) is handed out for the rows that want taps.
  std::vector<int32_t> tap_layers;

  // The pass runs layers [first_layer, end_layer), for all rows. Logits are those of the stream
  // behind the last of them, through the final norm and the head, wherever it ends (early exit).
  // One that does not begin with layer 0 goes on from hidden [rows][hidden], the stream that enters
  // first_layer; the entries of the layers before are in the cache from another pass.
  int first_layer = 0;
  int end_layer = kAllLayers;
  std::span<const float> hidden;
  // Layers, ascending, that are left out as if the model did not have them, in a pass from layer 0:
  // the cache has planes for the others alone.
  std::vector<int32_t> skipped_layers;

  int end_of(int layers) const { return end_layer == kAllLayers ? layers : end_layer; }

  void clear() {
    sequences.clear();
    rows.clear();
    tap_layers.clear();
    first_layer = 0;
    end_layer = kAllLayers;
    hidden = {};
    skipped_layers.clear();
  }
  int size() const { return static_cast<int>(rows.size()); }
};

// Logits that are brought to the host when they are asked for.
class LogitSource {
 public:
  virtual ~LogitSource() = default;

  // The i-th wanted row's, [vocab]; they hold until the model's next pass. In any order, and as
  // often as they are wanted. If they cannot be had, they are any numbers, and status() says why.
  virtual std::span<const float> fetch(int i) = 0;
  // Of all that was fetched since the pass.
  virtual Status status() const { return {}; }
};

// What came of it. Spans belong to the model and hold until it begins another pass.
struct ForwardOutputs {
  // Not ok: the pass failed. Then there are no outputs, and whether the rows' keys and values are
  // there is not known.
  Status status;
  // [rows that want logits, in batch order][vocab]; empty where there is a source.
  std::span<const float> logits;
  LogitSource* source = nullptr;
  // Of the same rows, of logits of which +infinity counts as the largest float; empty: the model
  // has not looked for them.
  std::span<const BestToken> best;
  TopTokens top;                // the same, where the model was made to look for them
  std::span<const float> taps;  // [rows that want taps, in batch order][tap_layers][hidden]
  // [rows that want states, in batch order][hidden]: what the head reads.
  std::span<const float> states;
  int vocab = 0;
  int state_width = 0;  // hidden
  int tap_width = 0;    // tap_layers * hidden
  // Experts whose weights the pass read, of all its layers together: each once, however many rows
  // use it.
  int64_t experts = 0;

  // The pass's, or of what was fetched of it so far.
  Status failure() const { return status.ok() && source != nullptr ? source->status() : status; }

  // The i-th wanted row's.
  std::span<const float> logits_of(int i) const {
    if (source != nullptr) return source->fetch(i);
    return logits.subspan(static_cast<size_t>(i) * static_cast<size_t>(vocab),
                          static_cast<size_t>(vocab));
  }
  // Of the first `rows` wanted rows, [rows][vocab]; into `memory` if they have to be fetched.
  std::span<const float> all_logits(int rows, std::vector<float>& memory) const {
    const size_t width = static_cast<size_t>(vocab), count = static_cast<size_t>(rows) * width;
    if (source == nullptr) return logits.first(count);
    memory.resize(count);
    for (int i = 0; i < rows; ++i) {
      std::ranges::copy(source->fetch(i), memory.begin() + static_cast<std::ptrdiff_t>(
                                                               static_cast<size_t>(i) * width));
    }
    return memory;
  }
  // Null: the model has not looked for it.
  const BestToken* best_of(int i) const {
    return best.empty() ? nullptr : &best[static_cast<size_t>(i)];
  }
  std::span<const float> state_of(int i) const {
    return states.subspan(static_cast<size_t>(i) * static_cast<size_t>(state_width),
                          static_cast<size_t>(state_width));
  }
  std::span<const float> taps_of(int i) const {
    return taps.subspan(static_cast<size_t>(i) * static_cast<size_t>(tap_width),
                        static_cast<size_t>(tap_width));
  }
};

}  // namespace aerie

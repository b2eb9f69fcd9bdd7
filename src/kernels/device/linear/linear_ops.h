// Arguments of the operations of layers with linear attention (device.h): the gated delta rule
// behind a short convolution, the state space that does not subtract, and the convolution alone.
// What is computed is kernels/delta_rule.h's, and states and records lie as kernels/state_layout.h
// has it.
#pragma once

#include <cstdint>

namespace aerie::device {

inline constexpr int kMostStateDim = 256;  // of keys, and of values
inline constexpr int kStateTile = 16;      // values of a matrix that lie side by side

// kernels::StateLayout, in floats.
struct StateShape {
  int heads = 0;  // 0: there is no matrix
  int key_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int taps = 0;
  bool tiled = false;  // HeadOrder::kTiled
  int channels = 0;
  int inputs = 0;                          // where those of the convolution begin in a state
  int changes = 0, decays = 0, input = 0;  // where they do in a record, whose keys come first
  int64_t state = 0, record = 0;           // floats of one
};

// A sequence of a pass. Indices are of StatePass::indices.
struct PassStateSequence {
  int32_t slot = 0;                    // its state
  int32_t first = 0, count = 0;        // index of its rows' numbers, parents first
  int32_t settled = 0;                 // index of the records of positions from .. end - 1
  int32_t from = 0, end = 0;           // what the state of a layer lacks of these it takes in
  int32_t saved = 0, saved_count = 0;  // index of the numbers of rows that have `into`
};

struct PassStateRow {
  int32_t sequence = 0;
  int32_t depth = 0;  // its ancestors behind the sequence's `end`
  // Index of the inputs of the last min(depth, taps - 1) of these, the newest first: a row of the
  // pass, or ~ a record.
  int32_t sources = 0;
  // Index of the records of all of them, the oldest first. A count of -1: it goes on from the row
  // that comes before it in its sequence.
  int32_t path = 0, path_count = 0;
  int32_t record = -1;         // which one it fills; -1: none
  int32_t into[2] = {-1, -1};  // slots that the state after it goes to; -1: none
};

// What changes from pass to pass, in device memory; pointers stay. No launch writes it: it is read
// while the one ahead still runs.
struct StatePass {
  const int32_t* row_count = nullptr;
  const int32_t* sequence_count = nullptr;
  const PassStateRow* rows = nullptr;
  const PassStateSequence* sequences = nullptr;
  const int32_t* bases =
      nullptr;  // [sequence]: the positions that the layer's states hold; 0: none
  const int32_t* indices = nullptr;
};

// What the operations of a layer have in common.
struct LinearLayer {
  StatePass pass;
  int most_rows = 0, most_sequences = 0;  // what is launched is for so many
  StateShape shape;
  // [row][x_stride]: the convolution's inputs, and what gates are made of; the inputs are
  // multiplied by input_gates, which lie likewise, if they are there.
  const float* x = nullptr;
  const float* input_gates = nullptr;
  int x_stride = 0;
  // Channels: queries, keys, and `values` others. Of layers with matrices all four and the number
  // of channels are multiples of 4.
  int queries_at = 0, keys_at = 0, values_at = 0, values = 0;
  // [row][channels]: what the convolution gives, keys and queries normed; 16 bytes aligned.
  float* mixed = nullptr;
  float* gates = nullptr;    // [row][2][heads]: beta, decay
  float* states = nullptr;   // [slot][state], the layer's
  float* records = nullptr;  // [record][record], the same
};

// Of each row: what the convolution gives, gates; and what its record has of them.
struct Convolve {
  LinearLayer layer;
  const float* weights = nullptr;  // [taps][channels], the oldest input's first
  const float* bias = nullptr;     // [channels]; null: zeros
  bool silu = true;
  // Heads of queries and keys are normed: x / sqrt(mean(x^2) + eps) times these; 0: they are not.
  float query_factor = 0.0f, key_factor = 0.0f;
  float eps = 0.0f;
  // In rows as x: those of a head lie at head / together * apart + head % together. No beta: it is
  // the step.
  const float* beta = nullptr;
  const float* alpha = nullptr;
  int together = 1, apart = 1;
  const float* rate = nullptr;  // [heads]: decay = e^(rate softplus(alpha + step))
  const float* step = nullptr;  // [heads]
};

// Brings what is settled into states, and rows through them in the order of their sequence: what
// each reads, changes of records, states that are kept. Behind convolve().
struct ScanStates {
  LinearLayer layer;
  bool subtract = true;
  float* out = nullptr;  // [row][heads][value_dim]
};

// out = f(gate) x, or of x's norm by heads; rounded.
struct GateHeads {
  enum class By : uint8_t { kItself, kSilu, kSigmoid };
  const int32_t* rows = nullptr;
  int most_rows = 0;
  int heads = 0;
  int dim = 0;               // of a head, at most kMostHeadDim
  const float* x = nullptr;  // [row][x_stride]: heads side by side; null: what is in out
  int x_stride = 0;
  const float* norm = nullptr;  // [dim], of all heads alike; null: none
  float eps = 0.0f;
  By by = By::kItself;
  const float* gates = nullptr;  // [row][gates_stride]: heads gates_apart from one another
  int gates_stride = 0, gates_apart = 0;
  uint16_t* out = nullptr;  // bfloat16 [row][out_stride]
  int out_stride = 0;
};

// out = silu(gate) (x + skip value), normed by groups of heads; rounded. Of state spaces.
struct GateGroups {
  const int32_t* rows = nullptr;
  int most_rows = 0;
  int groups = 0;
  int width = 0;             // of a group
  int dim = 0;               // of a head
  const float* x = nullptr;  // [row][x_stride]: groups side by side, and so the others
  int x_stride = 0;
  const float* values = nullptr;
  int values_stride = 0;
  const float* skip = nullptr;  // by head
  const float* gates = nullptr;
  int gates_stride = 0;
  const float* norm = nullptr;  // [groups][width]
  float eps = 0.0f;
  uint16_t* out = nullptr;  // bfloat16 [row][out_stride]
  int out_stride = 0;
};

// Of all planes of a cache, one after the other: StateMove.
struct MoveStates {
  enum Kind { kCopy, kClear, kApply };
  const int32_t* count = nullptr;
  const int32_t* moves = nullptr;  // [count][kind, plane, from, to]
  float* const* states = nullptr;  // by plane
  float* const* records = nullptr;
  int planes = 0;
  StateShape shape;
};

}  // namespace aerie::device

// Arguments of the operations of layers with linear attention, whose rows go on from each other's
// states (kernels/state_layout.h).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/state_layout.h"
#include "tensor/tensor.h"

namespace aerie::kernels {

// A causal convolution of each channel by itself, and SiLU, or without it:
// y[r][c] = silu(bias[c] + sum over t of weights[t][c] inputs[r][t][c]).
struct ShortConvArgs {
  // The channels are divided into parts, each with an output of its own.
  struct Part {
    float* y = nullptr;  // [rows][channels]
    int64_t channels = 0;
  };
  // Of all channels.
  struct Copy {
    const float* from = nullptr;  // null: zeros
    float* to = nullptr;
  };

  int taps = 0;
  const float* weights = nullptr;  // [taps][channels], the oldest input's first
  // [rows][taps]: the inputs of rows, the oldest first, each of all channels; null: zeros.
  std::span<const float* const> inputs;
  std::span<const Part> parts;
  // Made in this order once the rows are done, channel by channel: what a copy reads may be what a
  // later one writes.
  std::span<const Copy> copies;
  const float* bias = nullptr;  // [channels]; null: zeros
  bool silu = true;
};

// A sequence of a pass.
struct StateSequence {
  int32_t slot = 0;    // its state
  bool blank = false;  // nothing has been in it yet: it counts as zeros
  // Records of rows that stay: their changes go into the state.
  std::span<const int32_t> settled;
  std::span<const int32_t> rows;  // indices, parents first
};

struct StateRow {
  // The row whose state it goes on from; -1: the sequence's state, with the changes of the records
  // `above` in their order.
  int32_t parent = -1;
  std::span<const int32_t> above;
  bool needed = false;  // the state after it is: it has a child, or `into`
  // Where the state after it is kept for children that do not come next; -1: there are none.
  // Numbers of one sequence differ.
  int32_t keep = -1;
  int32_t record = -1;  // which record the row fills; -1: none
  // The slots that the state after it goes to, the sequence's own last; -1: none.
  std::array<int32_t, 2> into = {-1, -1};
};

// Scratch of the tiles under way, allocated once.
struct StateWorkspace {
  Buffer tiles;  // float [threads][1 + most_kept][tile]
  int64_t most_kept = 0;

  static Expected<StateWorkspace> allocate(const StateLayout& layout, int threads, int most_kept);
};

// The gated delta rule (Yang et al. 2024, 2412.06464, section 3.1), with a matrix M for each head:
//   change = beta (v - decay M^T k),  M' = decay M + k change^T,  out = M'^T q,
// where M'^T q is computed as decay M^T q + (k q) change. Keys and queries are of the head's key
// head. Without `subtract` it is the state space of Mamba-2 (Dao & Gu 2024, 2405.21060): change =
// beta v, whatever M has for the key.
struct DeltaRuleArgs {
  StateLayout layout;
  const float* q = nullptr;      // [rows][key_heads][key_dim]
  const float* k = nullptr;      // the same
  const float* v = nullptr;      // [rows][heads][value_dim]
  const float* decay = nullptr;  // [rows][heads]
  const float* beta = nullptr;   // [rows][heads]
  float* out = nullptr;          // [rows][heads][value_dim]
  std::span<const StateSequence> sequences;
  std::span<const StateRow> rows;
  float* states = nullptr;   // [slot][layout.state()], of which the matrices are used
  float* records = nullptr;  // [record][layout.record()], of which all but the input is
  StateWorkspace* workspace = nullptr;
  bool subtract = true;
};

}  // namespace aerie::kernels

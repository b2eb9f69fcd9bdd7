// The least time that a pass can take on a machine: every weight and every cached key and value is
// read once, and every product is computed, those of attention included.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"
#include "measure/passes/machine.h"

namespace aerie::measure {

struct PassWork {
  // Of the tensors as the file stores them; without the embedding table, of which a pass reads a
  // few rows, unless it is the head as well; and without experts.
  int64_t weight_bytes = 0;
  // Of a mixture of experts: bytes of one expert in one layer, layers that have some, how many
  // there are in each and how many a row uses.
  double expert_bytes = 0;
  int expert_layers = 0;
  int experts = 0;
  int used_experts = 0;
  // Multiplications and additions of one row's matrix products, by the dot that fits the weights.
  std::array<double, kernels::kDotCount> row_operations = {};
  // Of these, the head's: of rows that want no logits they are left out.
  double head_operations = 0;
  int64_t position_bytes = 0;  // of a layer's keys and values at one position
  std::vector<int> windows;    // of the layers' attention, in positions; 0: all
  // Of layers that keep states, all of them together: what a pass reads and writes of a sequence's,
  // and the multiplications and additions of a row.
  int64_t state_bytes = 0;
  double state_operations = 0;
  // Of a row with the key and the value at one position of a layer, by the dot that fits the cache:
  // queries and weights have 16 bits beside codes of 8, and then count as two bytes.
  double position_operations = 0;
  kernels::Dot attention_dot = kernels::Dot::kFloat;
  double attention_operations = 0;  // position_operations, each counted once

  // That a row at the end of a context of so many positions sees, of all layers.
  int64_t positions(int context) const;
  // What it reads of the cache.
  int64_t cache_bytes(int context) const { return positions(context) * position_bytes; }

  // Experts that `rows` rows read, of all layers together, if they choose them evenly and
  // independently of each other. Real rows share more.
  double expected_experts(int rows) const;
  // That a pass reads.
  double bytes(int context, double experts) const;
};

// Multiplications and additions of a prompt of so many tokens, of which none wants logits.
double prompt_operations(const PassWork& work, int tokens);

// The dot product that weights of a type take.
kernels::Dot dot_of(DType type);

Expected<PassWork> work_of(const ModelFile& file,
                           kernels::KvType cache_type = kernels::KvType::kF16);

// Seconds for `rows` rows. Products whose speed is not known are left out. Weights of 16 bits count
// as floats where the machine has no dot product of bfloat16, and so do all where it has none of
// bytes.
double floor_seconds(const PassWork& work, int context, int rows, const Limits& limits);
// The same where it is known how many experts they read.
double floor_seconds(const PassWork& work, int context, int rows, double experts,
                     const Limits& limits);

}  // namespace aerie::measure

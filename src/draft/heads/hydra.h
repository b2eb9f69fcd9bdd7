// Hydra's heads (Ankner et al. 2024, 2402.05109): as Medusa's, but each sees the tokens that were
// drafted before its own.
#pragma once

#include <memory>

#include "base/status.h"
#include "draft/heads/feature_head.h"
#include "draft/heads/head_parts.h"
#include "model/import/head_file.h"

namespace aerie {

struct HydraOptions : HeadOptions {
  int depth = 0;  // of drafts: heads beyond it are not loaded; 0: all are
};

// Head i: x = [h; e(root); e(first drafted token); ...; e(i-th)], then a block
// res_connection(x) + silu(linear(x)) that narrows it, then blocks x + silu(linear(x)), then the
// head's own output matrix. Heads that are not grounded see h alone, lack the first block and draft
// all depths in one pass. h is what the target computes before the root: its final norm of the
// stream after its last layer, or the stream hidden_state_offset layers before that. With the
// architecture prefix-mlp (Hydra++) h is further the output of a Llama layer of its own over the h
// of all positions, normed.
//
// How many heads and blocks there are is counted in the tensors. kInvalidArgument, naming what
// differs, for heads of another model; kInvalidData for tensors that do not fit together;
// kUnsupported for another architecture, for a tensor that has no place, and for Hydra++ on a
// target whose layers are not Llama's.
Expected<std::unique_ptr<FeatureHead>> load_hydra_head(HeadFile& file, const HeadTarget& target,
                                                       const HydraOptions& options);

}  // namespace aerie

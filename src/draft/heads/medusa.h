// Medusa's heads (Cai et al. 2024, 2401.10774): each looks at the target's hidden state alone, the
// i-th drafts the token i + 1 behind the root.
#pragma once

#include <memory>

#include "base/status.h"
#include "draft/heads/feature_head.h"
#include "draft/heads/head_parts.h"
#include "model/import/head_file.h"

namespace aerie {

struct MedusaOptions : HeadOptions {
  int depth = 0;  // of drafts: heads beyond it are not loaded; 0: all are
};

// x = the target's hidden state after its final norm, then blocks x + silu(w x + bias), then the
// head's own output matrix, or one that all share, or the target's.
//
// Reads Medusa's own files ("{head}.{block}.linear.weight", "{head}.{blocks}.weight"), a model that
// holds such heads under a prefix, whose other tensors are passed over, and vLLM's names
// ("blocks.{head}.layers.{block}", "lm_heads.{head}", "token_map"). How many heads there are is
// counted in the tensors. kInvalidArgument, naming what differs, for heads of another model;
// kInvalidData for tensors that do not fit together; kUnsupported for one that has no place.
Expected<std::unique_ptr<FeatureHead>> load_medusa_head(HeadFile& file, const HeadTarget& target,
                                                        const MedusaOptions& options);

}  // namespace aerie

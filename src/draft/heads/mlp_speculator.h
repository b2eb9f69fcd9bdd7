// MLPSpeculator (Wertheimer et al. 2024, 2404.19124): a recurrence over the drafted tokens that
// starts from the target's hidden state, with matrices of their own for each step.
#pragma once

#include <memory>

#include "base/status.h"
#include "draft/heads/feature_head.h"
#include "draft/heads/head_parts.h"
#include "model/import/head_file.h"

namespace aerie {

// Step i: s = gelu(norm_i(proj_i s + weight * emb_i(token))), logits = head_i(s), where s before
// the first step is the target's hidden state after its final norm, normed once more if the
// configuration says scale_input. n_predict steps, which is how deep a draft can be.
//
// kInvalidArgument, naming what differs, for a head of another model; kInvalidData for a
// configuration out of range or tensors that do not fit it; kUnsupported for a tensor that has no
// place.
Expected<std::unique_ptr<FeatureHead>> load_mlp_speculator_head(HeadFile& file,
                                                                const HeadTarget& target,
                                                                const HeadOptions& options);

}  // namespace aerie

// The recurrent drafter (ReDrafter, Cheng et al. 2024, 2403.09919): one head for all depths, with a
// state that the drafted tokens go into.
#pragma once

#include <memory>

#include "base/status.h"
#include "draft/heads/feature_head.h"
#include "draft/heads/head_parts.h"
#include "model/import/head_file.h"

namespace aerie {

// s = silu(rnn_w e(token) + rnn_u s), or s + e(token) without an RNN, from s = 0 on, the root's
// token being the first; x = [h; s], through input_proj if there is one, then blocks
// x + silu(w x + bias), then the output matrix. h is the target's hidden state before the root,
// after its final norm, e the target's embedding. Rows hand on [s; h].
//
// As published it drafts by beam search (NetworkDrafterOptions::beams). kInvalidArgument, naming
// what differs, for a head of another model; kInvalidData for a configuration out of range or
// tensors that do not fit it; kUnsupported for a tensor that has no place.
Expected<std::unique_ptr<FeatureHead>> load_redrafter_head(HeadFile& file, const HeadTarget& target,
                                                           const HeadOptions& options);

}  // namespace aerie

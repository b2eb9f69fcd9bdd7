// EAGLE (Li et al. 2024, 2401.15077), whose heads EAGLE-2 (2406.16858) drafts with too, and HASS
// (2408.15766), which trains the same network in another way.
#pragma once

#include <memory>

#include "base/status.h"
#include "draft/heads/feature_head.h"
#include "draft/heads/head_parts.h"
#include "model/import/head_file.h"

namespace aerie {

// z = fc([embedding of the next token; f]), f the target's hidden state behind its final norm, or
// what the row above handed on; out = ordinary layers of z, of which the first has no norm in front
// of its attention; logits = the target's LM head of out, and out is handed on.
//
// Where a checkpoint has these tensors, they are used: a bias of fc, an embedding, an LM head
// (`lm_head`), a norm in front of the first layer and one of out (`norm`; NeMo writes both). Names
// may begin with "model.", and be those of the package speculators.
//
// kInvalidArgument, naming what differs, for a head of another model, and if the options name
// layers to tap; kUnsupported for a tensor that has no place.
Expected<std::unique_ptr<FeatureHead>> load_eagle_head(HeadFile& file, const HeadTarget& target,
                                                       const HeadOptions& options);

}  // namespace aerie

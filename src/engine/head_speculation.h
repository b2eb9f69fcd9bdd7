// From the settings of a trained head to a drafter.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "draft/drafter.h"
#include "draft/network/network_drafter.h"
#include "draft/speculative_config.h"
#include "engine/model_source.h"
#include "engine/speculation.h"

namespace aerie {

// What all drafters that run a network take from the settings.
void set_tree(const MethodConfig& config, const DraftTarget& target,
              NetworkDrafterOptions& options);

// Opens the head's folder, holds it against the target (sizes; the tokenizer, if the folder has
// one) and the memory that is left. Requires is_head_method(config.method->name). Appends to
// `sources` what must outlive the drafter.
Expected<std::unique_ptr<Drafter>> make_head_drafter(const MethodConfig& config,
                                                     const DraftTarget& target,
                                                     std::vector<ModelSource>& sources);

}  // namespace aerie

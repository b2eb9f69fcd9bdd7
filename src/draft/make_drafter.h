// From the settings of speculation to a drafter.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "draft/draft_host.h"
#include "draft/drafter.h"
#include "draft/speculative_config.h"

namespace aerie {

// What Combination::kAuto takes beside the methods of `config`: those that come with the target and
// that it does not name, with their defaults.
std::vector<MethodConfig> methods_of_target(const SpeculativeConfig& config,
                                            const ModelFile& target);

// Each method's own make(), and of several drafters one. Null for plain decoding.
// Combination::kAuto and what is gated() require the target's cost. Of methods_of_target() those
// that cannot be made, or that memory does not suffice for, are left out with a warning.
Expected<std::unique_ptr<Drafter>> make_drafter(const SpeculativeConfig& config, DraftHost& host);

}  // namespace aerie

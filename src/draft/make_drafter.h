// From the settings of speculation to a drafter.
#pragma once

#include <memory>

#include "base/status.h"
#include "draft/draft_host.h"
#include "draft/drafter.h"
#include "draft/speculative_config.h"

namespace aerie {

// Each method's own make(), and of several drafters one. Null for plain decoding.
// Combination::kAuto and what is gated() require the target's cost.
Expected<std::unique_ptr<Drafter>> make_drafter(const SpeculativeConfig& config, DraftHost& host);

}  // namespace aerie

// What can draft for a model on this machine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "draft/speculative_config.h"
#include "engine/engine_options.h"

namespace aerie::measure {

// What tune() tries where nobody says what: `auto`, and of each method at hand its variants.
//
// At hand are
//   - methods that need no more than the model, and no more than a request usually brings;
//   - the modules for drafting that come with it;
//   - trained heads that fit it (of its sizes) and smaller models with its vocabulary that lie
//     beside its file or folder, up to three folders deep, or in the hub's cache in the folder
//     `hub_cache` (empty: none is searched). Each of them is also tried within `auto`.
// Whatever else lies there is passed over, as is what memory has no room for. Loads the model, and
// what it tries with it. Errors are those of opening the model.
Expected<std::vector<SpeculativeConfig>> candidates_at_hand(const EngineOptions& engine,
                                                            const std::string& hub_cache,
                                                            std::span<const int> depths);

// Each of the depths, unless the method says how many tokens it drafts, and at each its usual
// shape, a wider one and one with a higher threshold, as far as it has settings for that which are
// not given. A combination of methods has depths alone; "auto" and plain decoding are their only
// variant.
std::vector<SpeculativeConfig> variants_of(const SpeculativeConfig& method,
                                           std::span<const int> depths);

}  // namespace aerie::measure

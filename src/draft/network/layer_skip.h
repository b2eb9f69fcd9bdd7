// Self-speculation by leaving layers out (Draft & Verify, Zhang et al. 2309.08168): the target
// without some of its layers is the draft model, with the same weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "draft/network/draft_model.h"
#include "model/model.h"

namespace aerie {

// The layers of a list such as "8-12+14": numbers and ranges, counted from 0, in any order.
// kInvalidArgument, with what is wrong, for any other text, for layers that a model of `layers`
// does not have, and, unless it may be all of them, where none would be left.
Expected<std::vector<int32_t>> parse_layers(std::string_view text, int layers,
                                            bool may_be_all = false);

// As many layers as `fraction` of them says, spread evenly over all but the first and the last,
// which models can spare least. Requires 0 <= fraction < 1.
std::vector<int32_t> evenly_skipped_layers(int layers, double fraction);

// draft/network/draft_model.h with the target as its model, without the layers `skipped`
// (ascending; at least one stays, and ModelConfig::is_read() of none). The weights are the target's
// own; keys and values of the layers that stay have a cache of their own, since their inputs
// differ. `target` must outlive the drafter and take passes of options.max_rows rows.
Expected<std::unique_ptr<Drafter>> make_layer_skip_drafter(Model& target,
                                                           std::vector<int32_t> skipped,
                                                           const DraftModelOptions& options);

}  // namespace aerie

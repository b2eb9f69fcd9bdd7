// The transformer layer of a draft head, shaped like the target's, and what config.json says of it.
#pragma once

#include <cstdint>

#include "format/json.h"
#include "train/methods/target.h"
#include "train/nn/llama_layer.h"

namespace aerie::train {

// `intermediate` values in the feed-forward; 0: as many as the target's.
LayerShape head_layer_shape(const Target& target, int64_t intermediate);

// By Llama's keys; `context`: positions that the head will have seen.
Json head_layer_config(const Target& target, const LayerShape& shape, int context);

}  // namespace aerie::train

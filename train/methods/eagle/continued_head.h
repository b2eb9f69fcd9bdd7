// A head that is there already and is trained further: what it drafts, and its shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "train/methods/eagle/eagle3_head.h"

namespace aerie::train {

// The ids of a target of `vocab` tokens that a checkpoint drafts (its d2t), ascending; empty: all.
// Errors of opening its safetensors; kInvalidData for ids that cannot be.
Expected<std::vector<int32_t>> drafted_ids(const std::string& folder, int vocab);

// Sets what config.json says of a head in the form of speculators: shape and layers that it
// reads. `depth`: of the drafts by which it is judged. kNotFound and kInvalidData,
// naming the file and the key.
Status read_shape(const std::string& folder, Eagle3HeadOptions& options, int& depth);

}  // namespace aerie::train

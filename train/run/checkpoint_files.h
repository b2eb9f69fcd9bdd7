// Checkpoints as users load them: safetensors and a config.json.
#pragma once

#include <ATen/ATen.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"
#include "train/nn/parameters.h"

namespace aerie::train {

struct StoredTensor {
  std::string name;
  at::Tensor values;  // float (stored as F32), bfloat16, int64 or bool; on any device
};

// Parameters as they are stored, as F32, or matrices as BF16 and vectors as F32; and what is fixed.
std::vector<StoredTensor> stored_parameters(const Parameters& parameters, bool bf16);

// Puts model.safetensors and config.json into an existing folder, each whole or not at all.
Status write_checkpoint(const std::string& folder, const std::vector<StoredTensor>& tensors,
                        const Json& config);

// Adds a key to the config.json that is in the folder.
Status add_to_config(const std::string& folder, const std::string& key, const std::string& value);

// Sets the parameters that a checkpoint has by the same names, as F32, F16, BF16 or integers of 8
// or 4 bits with scales (format/safetensors/int8_weights.h, int4_weights.h), and returns the
// names of the others. kInvalidArgument for one of another shape or type, for fixed tensors that
// are not the same in both, and if it has none of the parameters.
Expected<std::vector<std::string>> read_parameters(const std::string& folder,
                                                   const Parameters& parameters);

}  // namespace aerie::train

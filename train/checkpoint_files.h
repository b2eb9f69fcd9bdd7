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

// Parameters as they are stored: as F32, or matrices as BF16 and vectors as F32.
std::vector<StoredTensor> stored_parameters(const Parameters& parameters, bool bf16);

// Puts model.safetensors and config.json into an existing folder, each whole or not at all.
Status write_checkpoint(const std::string& folder, const std::vector<StoredTensor>& tensors,
                        const Json& config);

// Reads back what write_checkpoint() stored of `tensors` into their values, in place. kNotFound for
// one that is missing, kInvalidData for one of another shape.
Status read_checkpoint(const std::string& folder, const std::vector<StoredTensor>& tensors);

// A text file, whole or not at all.
Status write_text(const std::string& path, const std::string& text);

}  // namespace aerie::train

// A target whose matrices have been trained, as a file.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "base/status.h"
#include "train/target.h"

namespace aerie::train {

// Matrices by their names in Target::tensor(), [outputs, inputs], float, as that gives them.
using AdaptedMatrices = std::map<std::string, at::Tensor>;

// Writes the target once more as a GGUF file, tokenizer and chat template with it, with these
// matrices for its own: as F16, or as F32 where the target's are that. What is not named stays as
// it is. The file is there whole or not at all.
//
// kNotFound and kInvalidData, naming it, for a matrix that the target does not have, or not of that
// shape; kInvalidData for values that F16 cannot hold; kUnsupported if GGUF has no name for
// something that a Hugging Face folder's tokenizer does.
Status write_adapted_model(const Target& target, const AdaptedMatrices& matrices,
                           const std::string& path);

}  // namespace aerie::train

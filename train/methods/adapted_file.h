// A target whose weights have been trained, as a file.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "base/status.h"
#include "train/methods/target.h"

namespace aerie::train {

// Matrices and vectors by their names in Target::tensor(), [outputs, inputs] or [width], float, as
// that gives them.
using AdaptedWeights = std::map<std::string, at::Tensor>;

// Writes the target once more as a GGUF file, tokenizer and chat template with it, with these
// weights for its own: as F16, or as F32 where the target's are that. What is not named stays as
// it is. The file is there whole or not at all.
//
// kNotFound and kInvalidData, naming it, for one that the target does not have, or not of that
// shape; kInvalidData for values that F16 cannot hold; kUnsupported if GGUF has no name for
// something that a Hugging Face folder's tokenizer does.
Status write_adapted_model(const Target& target, const AdaptedWeights& weights,
                           const std::string& path);

}  // namespace aerie::train

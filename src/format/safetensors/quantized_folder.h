// A Hugging Face folder, of a draft head or a model, once more with its matrices in 8 or 4 bits.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "tensor/dtype.h"

namespace aerie {

// Writes the tensors of a folder, or of a safetensors file, to the folder `output`, as one
// model.safetensors:
// - matrices of floats "X.weight" of more than one row whose rows are multiples of kInt8Group as
//   format/safetensors/int8_weights.h (Q8_0) or int4_weights.h (Q4_0) has them;
// - other such matrices as F16, or BF16 if they are that;
// - everything else as it is: routers of mixtures of experts, stacks of their matrices, and what
//   gates of linear attention are made of, too.
// config.json gets a quantization_config and keeps what it says otherwise. Other files of the input
// folder are copied, but for weights, hidden files and folders.
//
// Read again, matrices are what converting them to the type at load makes of them, bit for bit, if
// their rows are the rows of the products (in GPT-2's files they are not) and no stacks.
//
// kInvalidArgument for another type, and if there is anything at `output` but an empty folder;
// kUnsupported if config.json says that the input is quantised already; kInvalidData, naming tensor
// and element, for a value that the type cannot hold; otherwise as SafetensorsFolder::open_any()
// and write_safetensors(). Nothing is left of what cannot be written whole. Returns the bytes of
// the safetensors file.
Expected<int64_t> write_quantized_folder(const std::string& input, const std::string& output,
                                         DType type);

}  // namespace aerie

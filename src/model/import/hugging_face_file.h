// A Hugging Face folder (config.json and safetensors) as a ModelFile: its metadata and tensors are
// those of the GGUF file that it would be.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "format/draft_keys.h"
#include "format/gguf/metadata_builder.h"
#include "format/model_file.h"

namespace aerie {

// A GGUF file (or the first of its splits), or a Hugging Face folder.
Expected<std::unique_ptr<ModelFile>> open_model_file(const std::string& path);

// kUnsupported, naming it, for a model_type or a quantisation that is not supported, and for a
// tensor that has no place in the family.
//
// Matrices keep their type (F32, F16, BF16), but for those in 8 bits with scales, which become Q8_0
// where that loses nothing and F32 elsewhere (model/import/weights/quantization_scheme.h). Vectors
// are F32. Modules for multi-token prediction that the family reads are layers behind the model's,
// as in a GGUF file; if they cannot be read, the model is without them, and a warning says why.
// `more` may add metadata of its own: what else a GGUF file would hold. It hears how many rows the
// embedding has (0: there is none), and what it refuses is refused.
using AddMetadata = std::function<Status(int64_t vocab, MetadataBuilder& metadata)>;
Expected<std::unique_ptr<ModelFile>> open_hugging_face_folder(const std::string& path,
                                                              const AddMetadata& more = nullptr);

// Of such a folder, or of a file of safetensors with its config.json beside it, only the modules
// for multi-token prediction, as layers behind the model's: what PredictorFile wants. Nothing else
// need be there. kInvalidArgument if there are none that the family reads.
Expected<std::unique_ptr<ModelFile>> open_hugging_face_predictors(const std::string& path);

}  // namespace aerie

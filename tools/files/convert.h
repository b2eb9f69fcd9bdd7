// `aerie convert`: any model as one GGUF file, or in 8 bits as a folder; PyTorch's files as
// safetensors.
#pragma once

#include <iosfwd>

#include "base/status.h"
#include "engine/model_source.h"

namespace aerie {

// Says on `messages` what was written, and what GGUF cannot express.
Status convert(const ConvertOptions& options, std::ostream& messages);

}  // namespace aerie

// The Llama family: RMSNorm, rotary embedding on adjacent pairs, grouped queries, SwiGLU, tied or
// untied LM head. Touvron et al. 2023, 2302.13971; Dubey et al. 2024, 2407.21783.
#pragma once

#include <memory>

#include "model/model.h"

namespace aerie {

Expected<ModelConfig> read_llama_config(const ModelFile& file);
Expected<std::unique_ptr<Model>> load_llama(const ModelFile& file, const ModelOptions& options);

}  // namespace aerie

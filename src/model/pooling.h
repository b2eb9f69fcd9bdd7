// How a model's makers say that its states become one vector: pooling_type of a GGUF file, the
// modules of sentence-transformers in a Hugging Face folder.
#pragma once

#include <string>

#include "aerie/reply.h"
#include "base/status.h"
#include "format/gguf/metadata_builder.h"
#include "format/model_file.h"

namespace aerie {

// kLast where the file says nothing. kUnsupported, naming file and key, for another way, or a model
// whose tokens see those behind them.
Expected<Pooling> read_pooling(const ModelFile& file);

// Adds what the folder's 1_Pooling/config.json and modules.json say as the key of GGUF; nothing
// without these files. kInvalidData, naming the key, for a value of another kind.
Status add_pooling(const std::string& folder, const std::string& architecture,
                   MetadataBuilder& metadata);

}  // namespace aerie

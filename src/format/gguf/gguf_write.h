// Any model as a GGUF file.
#pragma once

#include <string>

#include "base/status.h"
#include "format/model_file.h"

namespace aerie {

// Writes metadata and tensors of `file`, in their order, as GGUF version 3 to `path`: whole or, on
// failure, not at all (what was at `path` before stays then). Tensors are read, written and
// released one by one. Data are aligned as "general.alignment" says, else to 32 bytes.
//
// kInvalidArgument if `path` is the file that is read; kUnsupported, naming the key or tensor, for
// arrays of arrays, which a ModelFile does not keep, and for tensors of types that are not DTypes;
// kResourceExhausted if the disk is full.
Status write_gguf(const ModelFile& file, const std::string& path);

}  // namespace aerie

// The header of a GGUF file, checked and taken apart. GgufFile (gguf.h) is the door for users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "format/gguf/gguf.h"

namespace aerie {

struct GgufContents {
  uint32_t version = 0;
  Metadata metadata;
  std::vector<TensorInfo> tensors;
};

// Everything points into `bytes`. Messages do not name the file.
Expected<GgufContents> parse_gguf(std::span<const std::byte> bytes);

}  // namespace aerie

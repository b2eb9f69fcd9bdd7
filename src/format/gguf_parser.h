// The header of a GGUF file, checked and taken apart. GgufFile (gguf.h) is the door for users.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/gguf.h"
#include "format/name_index.h"

namespace aerie {

struct GgufContents {
  uint32_t version = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata;
  std::vector<GgufTensor> tensors;
  NameIndex metadata_index;
  NameIndex tensor_index;
};

// Everything points into `bytes`. Messages do not name the file.
Expected<GgufContents> parse_gguf(std::span<const std::byte> bytes);

}  // namespace aerie

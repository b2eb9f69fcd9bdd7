// The names that PyTorch's files may use: of types of elements, and of the few functions that make
// tensors and dicts.
#pragma once

#include <cstdint>
#include <string_view>

#include "format/safetensors/safetensors.h"

namespace aerie {

// What a global of a pickle may be used for.
enum class TorchRole : uint8_t {
  kType,  // be named
  kCall,  // be called with arguments, which are kept
  kDict,  // be called for an empty dict
  kSize,  // be called for the tuple that it is given
};

struct TorchGlobal {
  std::string_view name;  // "torch.FloatStorage"
  TorchRole role = TorchRole::kType;
  SafetensorsType type = SafetensorsType::kF32;  // of a kType
};

// nullptr for everything that is not listed: importing it could run anything.
const TorchGlobal* find_torch_global(std::string_view name);

}  // namespace aerie

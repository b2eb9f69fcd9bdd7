#include "format/torch/torch_types.h"

#include <algorithm>
#include <iterator>

namespace aerie {
namespace {

constexpr TorchGlobal type(std::string_view name, SafetensorsType type) {
  return {name, TorchRole::kType, type};
}

constexpr TorchGlobal kGlobals[] = {
    {"collections.OrderedDict", TorchRole::kDict},
    {"torch.Size", TorchRole::kSize},
    {"torch._utils._rebuild_tensor", TorchRole::kCall},
    {"torch._utils._rebuild_tensor_v2", TorchRole::kCall},
    {"torch._utils._rebuild_tensor_v3", TorchRole::kCall},
    {"torch._utils._rebuild_parameter", TorchRole::kCall},
    {"torch._utils._rebuild_parameter_with_state", TorchRole::kCall},
    type("torch.FloatStorage", SafetensorsType::kF32),
    type("torch.DoubleStorage", SafetensorsType::kF64),
    type("torch.HalfStorage", SafetensorsType::kF16),
    type("torch.BFloat16Storage", SafetensorsType::kBF16),
    type("torch.LongStorage", SafetensorsType::kI64),
    type("torch.IntStorage", SafetensorsType::kI32),
    type("torch.ShortStorage", SafetensorsType::kI16),
    type("torch.CharStorage", SafetensorsType::kI8),
    type("torch.ByteStorage", SafetensorsType::kU8),
    type("torch.BoolStorage", SafetensorsType::kBool),
    type("torch.UntypedStorage", SafetensorsType::kU8),
    type("torch.storage.UntypedStorage", SafetensorsType::kU8),
    type("torch.float64", SafetensorsType::kF64),
    type("torch.float32", SafetensorsType::kF32),
    type("torch.float16", SafetensorsType::kF16),
    type("torch.bfloat16", SafetensorsType::kBF16),
    type("torch.float8_e4m3fn", SafetensorsType::kF8E4M3),
    type("torch.float8_e5m2", SafetensorsType::kF8E5M2),
    type("torch.int64", SafetensorsType::kI64),
    type("torch.int32", SafetensorsType::kI32),
    type("torch.int16", SafetensorsType::kI16),
    type("torch.int8", SafetensorsType::kI8),
    type("torch.uint64", SafetensorsType::kU64),
    type("torch.uint32", SafetensorsType::kU32),
    type("torch.uint16", SafetensorsType::kU16),
    type("torch.uint8", SafetensorsType::kU8),
    type("torch.bool", SafetensorsType::kBool),
};

}  // namespace

const TorchGlobal* find_torch_global(std::string_view name) {
  const auto* found = std::ranges::find(kGlobals, name, &TorchGlobal::name);
  return found == std::end(kGlobals) ? nullptr : found;
}

}  // namespace aerie

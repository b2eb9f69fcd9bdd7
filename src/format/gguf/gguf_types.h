// The numbers that GGUF files give to types of metadata values and of tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace aerie {

enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
inline constexpr uint32_t kGgufValueTypeCount = 13;

struct GgufValueTypeInfo {
  std::string_view name;        // "u8"
  std::string_view array_name;  // "array of u8"
  int min_bytes;                // that a value takes in the file; exact for numbers and booleans
};
const GgufValueTypeInfo& gguf_value_type_info(GgufValueType type);

// A tensor type of ggml, whether or not it is one that Aerie computes with.
struct GgmlType {
  uint32_t id;
  std::string_view name;
  int block_elements;
  int block_bytes;
  std::optional<DType> dtype;
};
// nullptr for a number that ggml does not use (or not any more).
const GgmlType* find_ggml_type(uint32_t id);
const GgmlType& ggml_type_of(DType dtype);

// "f32, f16, ...": the types that have a DType.
std::string supported_type_names();

}  // namespace aerie

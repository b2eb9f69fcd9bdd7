// Numbers of GGUF's types, as they stand in files and as they are kept.
#pragma once

#include <cassert>
#include <cstdint>
#include <type_traits>

#include "format/gguf/gguf_types.h"

namespace aerie {

// The kind in which a number of type T is kept.
template <typename T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, double,
                                std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

template <typename T>
Wide<T> widen(T value) {
  return value;
}

// Calls `fn` with a value of the type that `type` stands for, and returns what it returns. Requires
// a number's type.
template <typename Fn>
auto with_number_type(GgufValueType type, const Fn& fn) {
  switch (type) {
    case GgufValueType::kU8:
      return fn(uint8_t{});
    case GgufValueType::kI8:
      return fn(int8_t{});
    case GgufValueType::kU16:
      return fn(uint16_t{});
    case GgufValueType::kI16:
      return fn(int16_t{});
    case GgufValueType::kU32:
      return fn(uint32_t{});
    case GgufValueType::kI32:
      return fn(int32_t{});
    case GgufValueType::kF32:
      return fn(float{});
    case GgufValueType::kU64:
      return fn(uint64_t{});
    case GgufValueType::kI64:
      return fn(int64_t{});
    case GgufValueType::kF64:
      return fn(double{});
    case GgufValueType::kBool:
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  assert(false);
  return fn(uint8_t{});
}

}  // namespace aerie

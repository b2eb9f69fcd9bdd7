#include "format/gguf/gguf_types.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>

namespace aerie {
namespace {

constexpr std::array<GgufValueTypeInfo, kGgufValueTypeCount> kValueTypes = {{
    {"u8", "array of u8", 1},
    {"i8", "array of i8", 1},
    {"u16", "array of u16", 2},
    {"i16", "array of i16", 2},
    {"u32", "array of u32", 4},
    {"i32", "array of i32", 4},
    {"f32", "array of f32", 4},
    {"bool", "array of bool", 1},
    {"string", "array of string", 8},
    {"array", "array of array", 12},
    {"u64", "array of u64", 8},
    {"i64", "array of i64", 8},
    {"f64", "array of f64", 8},
}};

// ggml/include/ggml.h, enum ggml_type. Types that never lie in files (q8_1, q8_k) and retired
// numbers are left out.
constexpr std::array kGgmlTypes = {
    GgmlType{0, "f32", 1, 4, DType::kF32},
    GgmlType{1, "f16", 1, 2, DType::kF16},
    GgmlType{2, "q4_0", 32, 18, DType::kQ4_0},
    GgmlType{3, "q4_1", 32, 20, DType::kQ4_1},
    GgmlType{6, "q5_0", 32, 22, DType::kQ5_0},
    GgmlType{7, "q5_1", 32, 24, DType::kQ5_1},
    GgmlType{8, "q8_0", 32, 34, DType::kQ8_0},
    GgmlType{10, "q2_k", 256, 84, DType::kQ2_K},
    GgmlType{11, "q3_k", 256, 110, DType::kQ3_K},
    GgmlType{12, "q4_k", 256, 144, DType::kQ4_K},
    GgmlType{13, "q5_k", 256, 176, DType::kQ5_K},
    GgmlType{14, "q6_k", 256, 210, DType::kQ6_K},
    GgmlType{16, "iq2_xxs", 256, 66, DType::kIQ2_XXS},
    GgmlType{17, "iq2_xs", 256, 74, DType::kIQ2_XS},
    GgmlType{18, "iq3_xxs", 256, 98, DType::kIQ3_XXS},
    GgmlType{19, "iq1_s", 256, 50, std::nullopt},
    GgmlType{20, "iq4_nl", 32, 18, DType::kIQ4_NL},
    GgmlType{21, "iq3_s", 256, 110, DType::kIQ3_S},
    GgmlType{22, "iq2_s", 256, 82, DType::kIQ2_S},
    GgmlType{23, "iq4_xs", 256, 136, DType::kIQ4_XS},
    GgmlType{24, "i8", 1, 1, std::nullopt},
    GgmlType{25, "i16", 1, 2, std::nullopt},
    GgmlType{26, "i32", 1, 4, std::nullopt},
    GgmlType{27, "i64", 1, 8, std::nullopt},
    GgmlType{28, "f64", 1, 8, std::nullopt},
    GgmlType{29, "iq1_m", 256, 56, std::nullopt},
    GgmlType{30, "bf16", 1, 2, DType::kBF16},
    GgmlType{34, "tq1_0", 256, 54, std::nullopt},
    GgmlType{35, "tq2_0", 256, 66, std::nullopt},
    GgmlType{39, "mxfp4", 32, 17, DType::kMXFP4},
    GgmlType{40, "nvfp4", 64, 36, DType::kNVFP4},
    GgmlType{41, "q1_0", 128, 18, std::nullopt},
};

}  // namespace

const GgufValueTypeInfo& gguf_value_type_info(GgufValueType type) {
  assert(static_cast<uint32_t>(type) < kGgufValueTypeCount);
  return kValueTypes[static_cast<size_t>(type)];
}

const GgmlType* find_ggml_type(uint32_t id) {
  for (const GgmlType& type : kGgmlTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

const GgmlType& ggml_type_of(DType dtype) {
  const auto* type = std::ranges::find(kGgmlTypes, dtype, &GgmlType::dtype);
  assert(type != kGgmlTypes.end());
  return *type;
}

std::string supported_type_names() {
  std::string names;
  for (const GgmlType& type : kGgmlTypes) {
    if (!type.dtype) continue;
    if (!names.empty()) names += ", ";
    names += type.name;
  }
  return names;
}

}  // namespace aerie

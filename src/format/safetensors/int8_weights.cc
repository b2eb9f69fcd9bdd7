#include "format/safetensors/int8_weights.h"

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "tensor/blocks.h"
#include "tensor/quantize.h"

namespace aerie {

static_assert(kInt8Group == kWeightGroup);

Status check_rows(std::span<const float> values, int64_t k, DType type) {
  const auto count = static_cast<int64_t>(values.size());
  if (k < 1 || k % kWeightGroup != 0 || count % k != 0) {
    return invalid_argument("{} values are no rows of {}, a multiple of {}", count, k,
                            kWeightGroup);
  }
  if (const int64_t bad = find_unquantizable(type, values.data(), count); bad >= 0) {
    return invalid_data("element {} of row {} is {}, which {} cannot hold", bad % k, bad / k,
                        values[static_cast<size_t>(bad)], dtype_info(type).name);
  }
  return {};
}

Expected<Int8Rows> quantize_rows_int8(std::span<const float> values, int64_t k) {
  AERIE_RETURN_IF_ERROR(check_rows(values, k, DType::kQ8_0));
  Int8Rows rows;
  rows.codes.resize(values.size());
  rows.scales.resize(values.size() / kInt8Group);
  std::array<std::byte, sizeof(uint16_t) + kInt8Group> block;
  for (size_t i = 0; i < rows.scales.size(); ++i) {
    quantize(DType::kQ8_0, values.data() + i * kInt8Group, kInt8Group, block.data());
    std::memcpy(&rows.scales[i], block.data(), sizeof(uint16_t));
    std::memcpy(rows.codes.data() + i * kInt8Group, block.data() + sizeof(uint16_t), kInt8Group);
  }
  return rows;
}

Json integer_quantization_config(const char* format, int bits,
                                 std::span<const std::string> ignored) {
  const Json weights = {{"num_bits", bits}, {"type", "int"},       {"symmetric", true},
                        {"dynamic", false}, {"strategy", "group"}, {"group_size", kWeightGroup}};
  const Json group = {{"targets", {"Linear", "Embedding"}},
                      {"weights", weights},
                      {"input_activations", nullptr},
                      {"output_activations", nullptr}};
  Json ignore = Json::array();
  for (const std::string& module : ignored) ignore.push_back(module);
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"config_groups", {{"group_0", group}}},
          {"ignore", ignore}};
}

Json int8_quantization_config(std::span<const std::string> ignored) {
  return integer_quantization_config("int-quantized", 8, ignored);
}

}  // namespace aerie

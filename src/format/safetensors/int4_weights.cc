#include "format/safetensors/int4_weights.h"

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "format/safetensors/int8_weights.h"
#include "tensor/blocks.h"
#include "tensor/quantize.h"

namespace aerie {

static_assert(kInt4Group == kWeightGroup);

Expected<Int4Rows> quantize_rows_int4(std::span<const float> values, int64_t k) {
  AERIE_RETURN_IF_ERROR(check_rows(values, k, DType::kQ4_0));
  Int4Rows rows;
  rows.codes.resize(values.size() / 2);
  rows.scales.resize(values.size() / kInt4Group);
  constexpr size_t kHalf = kInt4Group / 2;
  std::array<uint8_t, sizeof(uint16_t) + kHalf> block;
  uint8_t* to = rows.codes.data();
  for (size_t i = 0; i < rows.scales.size(); ++i) {
    quantize(DType::kQ4_0, values.data() + i * kInt4Group, kInt4Group, block.data());
    std::memcpy(&rows.scales[i], block.data(), sizeof(uint16_t));
    // A block has the first half of its codes low and the second high.
    const uint8_t* codes = block.data() + sizeof(uint16_t);
    for (const int shift : {0, 4}) {
      for (size_t j = 0; j < kHalf; j += 2) {
        *to++ = static_cast<uint8_t>((codes[j] >> shift & 15) | (codes[j + 1] >> shift & 15) << 4);
      }
    }
  }
  return rows;
}

Json int4_quantization_config(std::span<const std::string> ignored) {
  return integer_quantization_config("pack-quantized", 4, ignored);
}

}  // namespace aerie

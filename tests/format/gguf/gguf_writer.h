// Builds GGUF files in memory, for tests: valid ones by default, broken ones on request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace aerie::test {

// Usage:
//   GgufWriter writer;
//   writer.add_string("general.architecture", "llama").add_u32("llama.block_count", 2);
//   writer.add_tensor("output.weight", DType::kQ4_0, {64, 100}, floats);
//   writer.write(path);  // or GgufFile::parse(writer.bytes(), "test")
// Nothing is checked: whatever is added is written.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  // Of tensor data; the default is 32. Anything else should be announced in the metadata too:
  // add_u32("general.alignment", ...).
  GgufWriter& set_alignment(uint32_t alignment);

  GgufWriter& add_u8(std::string_view key, uint8_t value);
  GgufWriter& add_i8(std::string_view key, int8_t value);
  GgufWriter& add_u16(std::string_view key, uint16_t value);
  GgufWriter& add_i16(std::string_view key, int16_t value);
  GgufWriter& add_u32(std::string_view key, uint32_t value);
  GgufWriter& add_i32(std::string_view key, int32_t value);
  GgufWriter& add_u64(std::string_view key, uint64_t value);
  GgufWriter& add_i64(std::string_view key, int64_t value);
  GgufWriter& add_f32(std::string_view key, float value);
  GgufWriter& add_f64(std::string_view key, double value);
  GgufWriter& add_bool(std::string_view key, bool value);
  GgufWriter& add_string(std::string_view key, std::string_view value);

  // T: (u)int8_t ... (u)int64_t, float, double, bool or std::string.
  template <typename T>
  GgufWriter& add_array(std::string_view key, const std::vector<T>& values);

  // The type's number and then these very bytes as the value.
  GgufWriter& add_raw(std::string_view key, uint32_t value_type, std::span<const std::byte> value);

  // `shape` has the fastest-varying size first. Floats are quantised (see test_quantize.h).
  GgufWriter& add_tensor(std::string_view name, DType type, const std::vector<int64_t>& shape,
                         std::span<const float> values);
  GgufWriter& add_tensor_bytes(std::string_view name, DType type, const std::vector<int64_t>& shape,
                               std::span<const std::byte> data);
  // Any type number, known or not.
  GgufWriter& add_raw_tensor(std::string_view name, uint32_t ggml_type,
                             const std::vector<int64_t>& shape, std::span<const std::byte> data);

  // Header and tensor data. header_size() is the length of the former, without padding.
  std::vector<std::byte> bytes() const;
  size_t header_size() const;
  Status write(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    uint32_t type;
    std::vector<int64_t> shape;
    std::vector<std::byte> data;
  };
  std::vector<std::byte> header() const;

  uint32_t version_;
  uint32_t alignment_ = 32;
  uint64_t metadata_count_ = 0;
  std::vector<std::byte> metadata_;
  std::vector<Tensor> tensors_;
};

// ggml's number of a type, as a GGUF file has it.
uint32_t ggml_type_id(DType type);

}  // namespace aerie::test

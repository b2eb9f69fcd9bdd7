#include "tests/format/gguf/gguf_writer.h"

#include <cstring>
#include <fstream>
#include <type_traits>

#include "tests/format/gguf/test_quantize.h"

namespace aerie::test {
namespace {

using Bytes = std::vector<std::byte>;

void append_bytes(Bytes& out, const void* data, size_t size) {
  const size_t at = out.size();
  out.resize(at + size);
  if (size > 0) std::memcpy(out.data() + at, data, size);
}

template <typename T>
void append(Bytes& out, T value) {
  append_bytes(out, &value, sizeof(value));
}

void append_string(Bytes& out, std::string_view text) {
  append<uint64_t>(out, text.size());
  append_bytes(out, text.data(), text.size());
}

template <typename T>
void append_value(Bytes& out, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    append_string(out, value);
  } else {
    append<T>(out, value);
  }
}

template <typename T>
constexpr uint32_t type_id() {
  if constexpr (std::is_same_v<T, uint8_t>) return 0;
  if constexpr (std::is_same_v<T, int8_t>) return 1;
  if constexpr (std::is_same_v<T, uint16_t>) return 2;
  if constexpr (std::is_same_v<T, int16_t>) return 3;
  if constexpr (std::is_same_v<T, uint32_t>) return 4;
  if constexpr (std::is_same_v<T, int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, std::string>) return 8;
  if constexpr (std::is_same_v<T, uint64_t>) return 10;
  if constexpr (std::is_same_v<T, int64_t>) return 11;
  if constexpr (std::is_same_v<T, double>) return 12;
}
constexpr uint32_t kArrayType = 9;

template <typename T>
Bytes value_bytes(const T& value) {
  Bytes bytes;
  append_value(bytes, value);
  return bytes;
}

size_t align_up(size_t size, size_t alignment) {
  return (size + alignment - 1) / alignment * alignment;
}

}  // namespace

GgufWriter& GgufWriter::set_alignment(uint32_t alignment) {
  alignment_ = alignment;
  return *this;
}

GgufWriter& GgufWriter::add_raw(std::string_view key, uint32_t value_type,
                                std::span<const std::byte> value) {
  append_string(metadata_, key);
  append<uint32_t>(metadata_, value_type);
  append_bytes(metadata_, value.data(), value.size());
  ++metadata_count_;
  return *this;
}

GgufWriter& GgufWriter::add_u8(std::string_view key, uint8_t value) {
  return add_raw(key, type_id<uint8_t>(), value_bytes(value));
}
GgufWriter& GgufWriter::add_i8(std::string_view key, int8_t value) {
  return add_raw(key, type_id<int8_t>(), value_bytes(value));
}
GgufWriter& GgufWriter::add_u16(std::string_view key, uint16_t value) {
  return add_raw(key, type_id<uint16_t>(), value_bytes(value));
}
GgufWriter& GgufWriter::add_i16(std::string_view key, int16_t value) {
  return add_raw(key, type_id<int16_t>(), value_bytes(value));
}
GgufWriter& GgufWriter::add_u32(std::string_view key, uint32_t value) {
  return add_raw(key, type_id<uint32_t>(), value_bytes(value));
}
GgufWriter& GgufWriter::add_i32(std::string_view key, int32_t value) {
  return add_raw(key, type_id<int32_t>(), value_bytes(value));
}
GgufWriter& GgufWriter::add_u64(std::string_view key, uint64_t value) {
  return add_raw(key, type_id<uint64_t>(), value_bytes(value));
}
GgufWriter& GgufWriter::add_i64(std::string_view key, int64_t value) {
  return add_raw(key, type_id<int64_t>(), value_bytes(value));
}
GgufWriter& GgufWriter::add_f32(std::string_view key, float value) {
  return add_raw(key, type_id<float>(), value_bytes(value));
}
GgufWriter& GgufWriter::add_f64(std::string_view key, double value) {
  return add_raw(key, type_id<double>(), value_bytes(value));
}
GgufWriter& GgufWriter::add_bool(std::string_view key, bool value) {
  return add_raw(key, type_id<bool>(), value_bytes(value));
}
GgufWriter& GgufWriter::add_string(std::string_view key, std::string_view value) {
  return add_raw(key, type_id<std::string>(), value_bytes(std::string(value)));
}

template <typename T>
GgufWriter& GgufWriter::add_array(std::string_view key, const std::vector<T>& values) {
  Bytes bytes;
  append<uint32_t>(bytes, type_id<T>());
  append<uint64_t>(bytes, values.size());
  for (size_t i = 0; i < values.size(); ++i) append_value<T>(bytes, values[i]);
  return add_raw(key, kArrayType, bytes);
}

template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<uint8_t>&);
template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<int8_t>&);
template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<uint16_t>&);
template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<int16_t>&);
template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<uint32_t>&);
template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<int32_t>&);
template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<uint64_t>&);
template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<int64_t>&);
template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<float>&);
template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<double>&);
template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<bool>&);
template GgufWriter& GgufWriter::add_array(std::string_view, const std::vector<std::string>&);

GgufWriter& GgufWriter::add_tensor(std::string_view name, DType type,
                                   const std::vector<int64_t>& shape,
                                   std::span<const float> values) {
  return add_tensor_bytes(name, type, shape, quantize(type, values));
}

GgufWriter& GgufWriter::add_tensor_bytes(std::string_view name, DType type,
                                         const std::vector<int64_t>& shape,
                                         std::span<const std::byte> data) {
  return add_raw_tensor(name, ggml_type_id(type), shape, data);
}

GgufWriter& GgufWriter::add_raw_tensor(std::string_view name, uint32_t ggml_type,
                                       const std::vector<int64_t>& shape,
                                       std::span<const std::byte> data) {
  tensors_.push_back({std::string(name), ggml_type, shape, Bytes(data.begin(), data.end())});
  return *this;
}

Bytes GgufWriter::header() const {
  Bytes out;
  append_bytes(out, "GGUF", 4);
  append<uint32_t>(out, version_);
  append<uint64_t>(out, tensors_.size());
  append<uint64_t>(out, metadata_count_);
  append_bytes(out, metadata_.data(), metadata_.size());
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    append_string(out, tensor.name);
    append<uint32_t>(out, static_cast<uint32_t>(tensor.shape.size()));
    for (const int64_t size : tensor.shape) append<int64_t>(out, size);
    append<uint32_t>(out, tensor.type);
    append<uint64_t>(out, offset);
    offset = align_up(offset + tensor.data.size(), alignment_);
  }
  return out;
}

size_t GgufWriter::header_size() const {
  return header().size();
}

Bytes GgufWriter::bytes() const {
  Bytes out = header();
  for (const Tensor& tensor : tensors_) {
    out.resize(align_up(out.size(), alignment_));
    append_bytes(out, tensor.data.data(), tensor.data.size());
  }
  return out;
}

Status GgufWriter::write(const std::string& path) const {
  const Bytes data = bytes();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  file.close();
  if (!file) return Status(StatusCode::kInternal, path + ": cannot write");
  return Status();
}

uint32_t ggml_type_id(DType type) {
  switch (type) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 30;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 6;
    case DType::kQ5_1:
      return 7;
    case DType::kQ8_0:
      return 8;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 11;
    case DType::kQ4_K:
      return 12;
    case DType::kQ5_K:
      return 13;
    case DType::kQ6_K:
      return 14;
    case DType::kIQ4_NL:
      return 20;
    case DType::kIQ4_XS:
      return 23;
    case DType::kMXFP4:
      return 39;
    case DType::kNVFP4:
      return 40;
    case DType::kIQ2_XXS:
      return 16;
    case DType::kIQ2_XS:
      return 17;
    case DType::kIQ3_XXS:
      return 18;
    case DType::kIQ3_S:
      return 21;
    case DType::kIQ2_S:
      return 22;
  }
  return 0;
}

}  // namespace aerie::test

#include "format/model_file.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "base/errors.h"
#include "format/gguf/gguf_types.h"
#include "format/text.h"

namespace aerie {

void set_type(TensorInfo& tensor, DType type) {
  const GgmlType& ggml = ggml_type_of(type);
  tensor.dtype = type;
  tensor.type_name = ggml.name;
  tensor.type_id = ggml.id;
  tensor.offset = 0;
  tensor.bytes = dtype_bytes(type, tensor.elements());
}

Expected<TensorData> select_rows(const TensorData& matrix, std::span<const int32_t> ids) {
  const TensorView& from = matrix.view;
  const bool is_vector = from.rows() == 1;
  if (is_vector && dtype_info(from.dtype).block_elements != 1) {
    return not_supported("elements of a vector of blocks cannot be selected");
  }
  const int64_t rows = is_vector ? from.row_length() : from.rows();
  const auto bytes = static_cast<size_t>(from.bytes() / rows);
  if (ids.empty()) return invalid_argument("no rows are selected");
  TensorData out;
  AERIE_ASSIGN_OR_RETURN(out.owned, Buffer::allocate(ids.size() * bytes));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= rows) {
      return invalid_argument("row {} is selected of {}", ids[i], rows);
    }
    std::memcpy(out.owned.data() + i * bytes, from.data + static_cast<size_t>(ids[i]) * bytes,
                bytes);
  }
  const auto count = static_cast<int64_t>(ids.size());
  const Shape shape = is_vector ? Shape{count, 1, 1, 1} : Shape{from.row_length(), count, 1, 1};
  out.view = {from.dtype, from.device, shape, out.owned.data()};
  return out;
}

void ModelFile::set_contents(Metadata metadata, std::vector<TensorInfo> tensors) {
  metadata_ = std::move(metadata);
  tensors_ = std::move(tensors);
  metadata_index_.build(static_cast<uint32_t>(metadata_.size()),
                        [this](uint32_t i) { return metadata_[i].first; });
  tensor_index_.build(static_cast<uint32_t>(tensors_.size()),
                      [this](uint32_t i) { return tensors_[i].name; });
}

const MetadataValue* ModelFile::find(std::string_view key) const {
  const auto index = metadata_index_.find(key);
  return index ? &metadata_[*index].second : nullptr;
}

const TensorInfo* ModelFile::find_tensor(std::string_view name) const {
  const auto index = tensor_index_.find(name);
  return index ? &tensors_[*index] : nullptr;
}

Status ModelFile::wrong_kind(std::string_view key, std::string_view wanted) const {
  return invalid_data("{}: metadata key '{}' is of type {}; {} is wanted", name_, printable(key),
                      find(key)->type_name, wanted);
}

// The value under `key` if it is of kind T (MetadataScalar, MetadataArray).
template <typename T>
Expected<const T*> ModelFile::get(std::string_view key, std::string_view wanted) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) {
    return not_found("{}: there is no metadata key '{}'", name_, printable(key));
  }
  const T* kind = std::get_if<T>(&value->value);
  if (kind == nullptr) return wrong_kind(key, wanted);
  return kind;
}

Expected<int64_t> ModelFile::integer(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const MetadataScalar* scalar, get<MetadataScalar>(key, "an integer"));
  if (const auto* value = std::get_if<int64_t>(scalar)) return *value;
  const auto* value = std::get_if<uint64_t>(scalar);
  if (value == nullptr) return wrong_kind(key, "an integer");
  if (*value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return invalid_data("{}: metadata key '{}' is {}, too large", name(), printable(key), *value);
  }
  return static_cast<int64_t>(*value);
}

Expected<double> ModelFile::number(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const MetadataScalar* scalar, get<MetadataScalar>(key, "a number"));
  if (const auto* value = std::get_if<double>(scalar)) return *value;
  if (const auto* value = std::get_if<int64_t>(scalar)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<uint64_t>(scalar)) return static_cast<double>(*value);
  return wrong_kind(key, "a number");
}

Expected<bool> ModelFile::boolean(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const MetadataScalar* scalar, get<MetadataScalar>(key, "a boolean"));
  if (const auto* value = std::get_if<bool>(scalar)) return *value;
  return wrong_kind(key, "a boolean");
}

Expected<std::string_view> ModelFile::string(std::string_view key) const {
  AERIE_ASSIGN_OR_RETURN(const MetadataScalar* scalar, get<MetadataScalar>(key, "a string"));
  if (const auto* value = std::get_if<std::string_view>(scalar)) return *value;
  return wrong_kind(key, "a string");
}

Expected<std::span<const std::string_view>> ModelFile::strings(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of strings";
  AERIE_ASSIGN_OR_RETURN(const MetadataArray* array, get<MetadataArray>(key, kWanted));
  const auto* values = std::get_if<std::vector<std::string_view>>(array);
  if (values == nullptr) return wrong_kind(key, kWanted);
  return std::span<const std::string_view>(*values);
}

Expected<std::vector<double>> ModelFile::numbers(std::string_view key) const {
  constexpr std::string_view kWanted = "an array of numbers";
  AERIE_ASSIGN_OR_RETURN(const MetadataArray* array, get<MetadataArray>(key, kWanted));
  if (const auto* values = std::get_if<std::vector<double>>(array)) return *values;
  std::vector<double> out;
  if (const auto* values = std::get_if<std::vector<int64_t>>(array)) {
    out.assign(values->begin(), values->end());
  } else if (const auto* unsigned_values = std::get_if<std::vector<uint64_t>>(array)) {
    out.assign(unsigned_values->begin(), unsigned_values->end());
  } else {
    return wrong_kind(key, kWanted);
  }
  return out;
}

Expected<const TensorInfo*> ModelFile::tensor_info(std::string_view name) const {
  const TensorInfo* tensor = find_tensor(name);
  if (tensor == nullptr) {
    return not_found("{}: there is no tensor '{}'", name_, printable(origin_of(name)));
  }
  if (!tensor->dtype) {
    return not_supported(
        "{}: tensor '{}' is of type {}{}, which is not supported; use a file whose tensors are of "
        "{}",
        name_, printable(name), tensor->type_name,
        tensor->type_id != 0 ? fmt::format(" (number {})", tensor->type_id) : "",
        supported_type_names());
  }
  return tensor;
}

Expected<TensorData> ModelFile::read(std::string_view name) const {
  AERIE_ASSIGN_OR_RETURN(const TensorInfo* tensor, tensor_info(name));
  return read_tensor(*tensor);
}

void ModelFile::release(const TensorView&) const {}

}  // namespace aerie

#include "format/gguf/gguf_write.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <type_traits>

#include "base/errors.h"
#include "base/progress.h"
#include "format/gguf/gguf_numbers.h"
#include "format/output_file.h"
#include "format/text.h"

namespace aerie {
namespace {

constexpr uint32_t kVersion = 3;
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = 4096;
constexpr std::string_view kAlignmentKey = "general.alignment";

class Header {
 public:
  template <typename T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T> && std::endian::native == std::endian::little);
    const auto* bytes = reinterpret_cast<const char*>(&value);
    text_.append(bytes, sizeof(value));
  }
  void bytes(std::string_view text) { text_ += text; }
  void string(std::string_view text) {
    number<uint64_t>(text.size());
    bytes(text);
  }
  std::span<const std::byte> span() const { return std::as_bytes(std::span(text_)); }

 private:
  std::string text_;
};

// The number of a value's type and whether it is of an array, from the type's name.
struct ValueType {
  GgufValueType type;
  bool array;
};
std::optional<ValueType> find_type(std::string_view name) {
  for (uint32_t i = 0; i < kGgufValueTypeCount; ++i) {
    const auto type = static_cast<GgufValueType>(i);
    if (gguf_value_type_info(type).name == name) return ValueType{type, false};
    if (gguf_value_type_info(type).array_name == name) return ValueType{type, true};
  }
  return std::nullopt;
}

// Values were widened when they were read, so they fit. Requires fits<T>(type).
template <typename T>
void append_element(Header& out, GgufValueType type, const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    out.string(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    out.number<uint8_t>(value ? 1 : 0);
  } else {
    with_number_type(type,
                     [&]<typename Number>(Number) { out.number(static_cast<Number>(value)); });
  }
}

// Whether values of kind T are what the type's name says.
template <typename T>
bool fits(GgufValueType type) {
  if (type == GgufValueType::kString) return std::is_same_v<T, std::string_view>;
  if (type == GgufValueType::kBool) return std::is_same_v<T, bool>;
  if (type == GgufValueType::kArray) return false;
  return with_number_type(type,
                          []<typename Number>(Number) { return std::is_same_v<T, Wide<Number>>; });
}

Status append_value(Header& out, const MetadataValue& value) {
  if (std::holds_alternative<std::monostate>(value.value)) {
    return not_supported("is an {}, whose values were not kept; remove the key to write the file",
                         value.type_name);
  }
  const auto type = find_type(value.type_name);
  const auto* array = std::get_if<MetadataArray>(&value.value);
  const auto mismatch = [&value] {
    return internal_error("has a value that is not of its type {}", value.type_name);
  };
  if (!type || type->array != (array != nullptr)) return mismatch();
  if (array == nullptr) {
    out.number(static_cast<uint32_t>(type->type));
    return std::visit(
        [&]<typename T>(const T& scalar) {
          if (!fits<T>(type->type)) return mismatch();
          append_element(out, type->type, scalar);
          return Status();
        },
        std::get<MetadataScalar>(value.value));
  }
  out.number(static_cast<uint32_t>(GgufValueType::kArray));
  out.number(static_cast<uint32_t>(type->type));
  return std::visit(
      [&]<typename T>(const std::vector<T>& values) {
        if (!fits<T>(type->type)) return mismatch();
        out.number<uint64_t>(values.size());
        for (const T element : values) append_element<T>(out, type->type, element);
        return Status();
      },
      *array);
}

Expected<int64_t> find_alignment(const ModelFile& file) {
  const MetadataValue* value = file.find(kAlignmentKey);
  if (value == nullptr) return kDefaultAlignment;
  AERIE_ASSIGN_OR_RETURN(const int64_t alignment, file.integer(kAlignmentKey));
  if (value->type_name == "u32" && alignment >= 8 && alignment <= kMaxAlignment &&
      std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return alignment;
  }
  return not_supported("{}: metadata key '{}' is {}; powers of two from 8 to {} can be written",
                       file.name(), kAlignmentKey, alignment, kMaxAlignment);
}

void append_tensor_info(Header& out, const TensorInfo& tensor, int64_t offset) {
  uint32_t rank = 4;
  while (rank > 1 && tensor.shape[rank - 1] == 1) --rank;
  out.string(tensor.name);
  out.number(rank);
  for (uint32_t i = 0; i < rank; ++i) out.number(static_cast<uint64_t>(tensor.shape[i]));
  out.number(tensor.type_id);
  out.number(static_cast<uint64_t>(offset));
}

Status make_header(const ModelFile& file, int64_t alignment, Header& out) {
  out.bytes("GGUF");
  out.number(kVersion);
  out.number<uint64_t>(file.tensors().size());
  out.number<uint64_t>(file.metadata().size());
  for (const auto& [key, value] : file.metadata()) {
    out.string(key);
    AERIE_RETURN_IF_ERROR(
        append_value(out, value)
            .with_context(fmt::format("{}: metadata key '{}'", file.name(), printable(key))));
  }
  int64_t offset = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    AERIE_RETURN_IF_ERROR(file.tensor_info(tensor.name).status());
    append_tensor_info(out, tensor, offset);
    offset += (tensor.bytes + alignment - 1) / alignment * alignment;
  }
  return Status();
}

Status write_tensor(const ModelFile& file, const TensorInfo& tensor, OutputFile& out) {
  AERIE_ASSIGN_OR_RETURN(const TensorData data, file.read(tensor.name));
  const TensorView& view = data.view;
  if (view.dtype != tensor.dtype || view.shape != tensor.shape || view.bytes() != tensor.bytes) {
    return internal_error("{}: tensor '{}' is not as it was described", file.name(),
                          printable(tensor.name));
  }
  Status status = out.write({view.data, static_cast<size_t>(view.bytes())});
  file.release(view);
  AERIE_RETURN_IF_ERROR(file.check_intact());
  return status;
}

int64_t bytes_of_tensors(const ModelFile& file) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) bytes += tensor.bytes;
  return bytes;
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error) && !error;
}

}  // namespace

Status write_gguf(const ModelFile& file, const std::string& path) {
  if (is_same_file(path, file.name())) {
    return invalid_argument("{}: is the file that is read; write to another name", path);
  }
  AERIE_ASSIGN_OR_RETURN(const int64_t alignment, find_alignment(file));
  Header header;
  AERIE_RETURN_IF_ERROR(make_header(file, alignment, header));
  AERIE_ASSIGN_OR_RETURN(OutputFile out, OutputFile::create(path));
  AERIE_RETURN_IF_ERROR(out.write(header.span()));
  AERIE_RETURN_IF_ERROR(out.pad_to(alignment));
  Progress progress("writing " + path, bytes_of_tensors(file), ProgressUnit::kBytes);
  for (const TensorInfo& tensor : file.tensors()) {
    AERIE_RETURN_IF_ERROR(write_tensor(file, tensor, out));
    AERIE_RETURN_IF_ERROR(out.pad_to(alignment));
    progress.add(tensor.bytes);
  }
  return out.commit();
}

}  // namespace aerie

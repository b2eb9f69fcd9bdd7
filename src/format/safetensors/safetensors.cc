#include "format/safetensors/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "format/byte_reader.h"
#include "format/text.h"

namespace aerie {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // what the format's own library reads
constexpr size_t kMaxRank = 16;
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::array<SafetensorsTypeInfo, 22> kTypes = {{
    {"BOOL", 8, std::nullopt},        {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},     {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, std::nullopt},          {"I8", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt},     {"F8_E4M3", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt},     {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt}, {"I16", 16, std::nullopt},
    {"U16", 16, std::nullopt},        {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},       {"I32", 32, std::nullopt},
    {"U32", 32, std::nullopt},        {"F32", 32, DType::kF32},
    {"C64", 64, std::nullopt},        {"F64", 64, std::nullopt},
    {"I64", 64, std::nullopt},        {"U64", 64, std::nullopt},
}};
static_assert(kTypes.size() == static_cast<size_t>(SafetensorsType::kU64) + 1);

std::string in_tensor(std::string_view name) {
  return fmt::format("tensor '{}'", printable(name));
}

Status check_start(std::string_view text, uint64_t header_bytes) {
  if (header_bytes > kMaxHeaderBytes && text.starts_with("GGUF")) {
    return invalid_data("is a GGUF file, not a safetensors file");
  }
  if (header_bytes > kMaxHeaderBytes) {
    return invalid_data(
        "is not a safetensors file: it starts with \"{}\", which would be a header of {} bytes; at "
        "most {} are read",
        printable(text.substr(0, 16)), header_bytes, kMaxHeaderBytes);
  }
  if (header_bytes > text.size() - sizeof(uint64_t)) {
    return invalid_data(
        "a header of {} bytes is declared, but {} bytes follow: it is not a safetensors file, or "
        "its download is incomplete",
        header_bytes, text.size() - sizeof(uint64_t));
  }
  if (header_bytes == 0) return invalid_data("the header is empty");
  return Status();
}

Status read_type(const JsonObject& entry, SafetensorsType& type) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view name, entry.string("dtype"));
  const auto it = std::ranges::find(kTypes, name, &SafetensorsTypeInfo::name);
  if (it == kTypes.end()) {
    return entry.error(StatusCode::kUnsupported, "dtype", "is '{}', which is not known",
                       printable(name));
  }
  type = static_cast<SafetensorsType>(it - kTypes.begin());
  return Status();
}

// Shape and type, and the bytes that these take.
Status read_shape(const JsonObject& entry, SafetensorsTensor& tensor, int64_t& bytes) {
  AERIE_RETURN_IF_ERROR(read_type(entry, tensor.type));
  AERIE_ASSIGN_OR_RETURN(tensor.shape, entry.integers("shape"));
  const auto refuse = [&](const std::string& why) {
    return entry.error(StatusCode::kInvalidData, "shape", why);
  };
  if (tensor.shape.size() > kMaxRank) {
    return refuse(fmt::format("has {} sizes, more than {}", tensor.shape.size(), kMaxRank));
  }
  const int64_t bits = safetensors_type_info(tensor.type).bits;
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) {
    if (size < 0) return refuse(fmt::format("has the size {}", size));
    // A size of 0 makes nothing of all others, but these are held to the limit too.
    const int64_t room =
        std::numeric_limits<int64_t>::max() / bits / std::max<int64_t>(elements, 1);
    if (size > room) return refuse("is of more bytes than a file can hold");
    elements *= size;
  }
  if (elements * bits % 8 != 0) return refuse("does not fill whole bytes");
  bytes = elements * bits / 8;
  return Status();
}

Status read_tensor(const JsonObject& entry, std::span<const std::byte> data,
                   SafetensorsTensor& tensor) {
  int64_t bytes = 0;
  AERIE_RETURN_IF_ERROR(read_shape(entry, tensor, bytes));
  AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, entry.integers("data_offsets"));
  const auto refuse = [&](const std::string& why) {
    return entry.error(StatusCode::kInvalidData, "data_offsets", why);
  };
  if (offsets.size() != 2) {
    return refuse(fmt::format("has {} numbers; 2 are wanted", offsets.size()));
  }
  const int64_t begin = offsets[0], end = offsets[1];
  if (begin < 0 || end < begin) {
    return refuse(fmt::format("is [{}, {}], which is no range", begin, end));
  }
  const auto size = static_cast<int64_t>(data.size());
  if (end > size) {
    return refuse(fmt::format(
        "is [{}, {}], but the file has {} bytes of tensors: {} bytes are missing (the download may "
        "be incomplete)",
        begin, end, size, end - size));
  }
  if (end - begin != bytes) {
    return refuse(fmt::format("is [{}, {}], {} bytes; type {} and shape [{}] make {}", begin, end,
                              end - begin, safetensors_type_info(tensor.type).name,
                              fmt::join(tensor.shape, ", "), bytes));
  }
  tensor.data = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes));
  return Status();
}

Status read_metadata(const Json& value, const std::string& file,
                     std::vector<std::pair<std::string, std::string>>& out) {
  AERIE_ASSIGN_OR_RETURN(const JsonObject object, JsonObject::view(value, file));
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return object.error(StatusCode::kInvalidData, key, "is a {}; a string is wanted",
                          text.type_name());
    }
    out.emplace_back(key, text.get_ref<const std::string&>());
  }
  return Status();
}

Status check_layout(std::span<const SafetensorsTensor> tensors, std::span<const std::byte> data) {
  std::vector<const SafetensorsTensor*> order;
  order.reserve(tensors.size());
  for (const SafetensorsTensor& tensor : tensors) order.push_back(&tensor);
  const auto place = [](const SafetensorsTensor* tensor) {
    return std::pair(tensor->data.data(), tensor->data.size());
  };
  std::ranges::sort(order, [&](const auto* a, const auto* b) { return place(a) < place(b); });
  size_t end = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto begin = static_cast<size_t>(order[i]->data.data() - data.data());
    if (begin < end) {
      return invalid_data("{} and {} overlap in the file", in_tensor(order[i - 1]->name),
                          in_tensor(order[i]->name));
    }
    if (begin > end) {
      return invalid_data("{} bytes before {} belong to no tensor", begin - end,
                          in_tensor(order[i]->name));
    }
    end += order[i]->data.size();
  }
  if (end == data.size()) return Status();
  return invalid_data("{} bytes behind the last tensor belong to none", data.size() - end);
}

}  // namespace

const SafetensorsTypeInfo& safetensors_type_info(SafetensorsType type) {
  return kTypes[static_cast<size_t>(type)];
}

namespace {

template <typename T>
std::vector<int64_t> widen(std::span<const std::byte> data) {
  std::vector<int64_t> values(data.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
    values[i] = int64_t{value};
  }
  return values;
}

}  // namespace

Expected<std::vector<int64_t>> read_integers(const SafetensorsTensor& tensor) {
  switch (tensor.type) {
    case SafetensorsType::kBool:
    case SafetensorsType::kU8:
      return widen<uint8_t>(tensor.data);
    case SafetensorsType::kI8:
      return widen<int8_t>(tensor.data);
    case SafetensorsType::kI16:
      return widen<int16_t>(tensor.data);
    case SafetensorsType::kU16:
      return widen<uint16_t>(tensor.data);
    case SafetensorsType::kI32:
      return widen<int32_t>(tensor.data);
    case SafetensorsType::kU32:
      return widen<uint32_t>(tensor.data);
    case SafetensorsType::kI64:
      return widen<int64_t>(tensor.data);
    default:
      return not_supported("{} is of type {}; integers are wanted", in_tensor(tensor.name),
                           safetensors_type_info(tensor.type).name);
  }
}

int64_t SafetensorsTensor::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view name) const {
  const auto index = index_.find(name);
  return index ? &tensors_[*index] : nullptr;
}

Status SafetensorsFile::read_header(const Json& header, std::span<const std::byte> data) {
  AERIE_RETURN_IF_ERROR(JsonObject::view(header, name_).status());
  tensors_.reserve(header.size());
  for (const auto& [key, value] : header.items()) {
    if (key == kMetadataKey) {
      const std::string where = fmt::format("{}: {}", name_, kMetadataKey);
      AERIE_RETURN_IF_ERROR(read_metadata(value, where, metadata_));
      continue;
    }
    const std::string where = fmt::format("{}: {}", name_, in_tensor(key));
    if (key.empty()) return invalid_data("{}: the name is empty", where);
    if (key.find('\0') != std::string::npos) {
      return invalid_data("{}: the name contains a NUL byte", where);
    }
    AERIE_ASSIGN_OR_RETURN(const JsonObject entry, JsonObject::view(value, where));
    SafetensorsTensor& tensor = tensors_.emplace_back();
    tensor.name = key;
    Status status = read_tensor(entry, data, tensor);
    // What is absent here makes the file broken.
    if (status.code() == StatusCode::kNotFound) return invalid_data("{}", status.message());
    AERIE_RETURN_IF_ERROR(status);
  }
  AERIE_RETURN_IF_ERROR(check_layout(tensors_, data).with_context(name_));
  index_.build(static_cast<uint32_t>(tensors_.size()),
               [this](uint32_t i) { return std::string_view(tensors_[i].name); });
  return Status();
}

Status SafetensorsFile::read(std::span<const std::byte> bytes) {
  bytes_ = bytes;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) return invalid_data("{}: is empty, not a safetensors file", name_);
  if (is_git_lfs_pointer(text)) {
    return invalid_data(
        "{}: is not a safetensors file but a Git LFS pointer to one; fetch it with: git lfs pull",
        name_);
  }
  ByteReader reader(bytes);
  uint64_t header_bytes = 0;
  AERIE_RETURN_IF_ERROR(reader.read(header_bytes).with_context(name_));
  AERIE_RETURN_IF_ERROR(check_start(text, header_bytes).with_context(name_));
  std::string_view header_text;
  AERIE_RETURN_IF_ERROR(reader.read_text(header_bytes, header_text).with_context(name_));
  if (header_text[0] != '{') {
    return invalid_data("{}: the header starts with \"{}\", not with a brace", name_,
                        printable(header_text.substr(0, 16)));
  }
  AERIE_ASSIGN_OR_RETURN(const Json header, parse_json(header_text, name_ + ": header"));
  return read_header(header, bytes.subspan(reader.offset()));
}

Expected<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes,
                                                 std::string name) {
  SafetensorsFile file(std::move(name));
  AERIE_RETURN_IF_ERROR(file.read(bytes));
  return file;
}

Expected<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file(path);
  AERIE_ASSIGN_OR_RETURN(file.file_, MappedFile::open(path));
  const Status read = file.read(file.file_.bytes());
  AERIE_RETURN_IF_ERROR(file.check());
  AERIE_RETURN_IF_ERROR(read);
  return file;
}

}  // namespace aerie

#include "format/gguf/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "base/errors.h"
#include "format/byte_reader.h"
#include "format/gguf/gguf_numbers.h"
#include "format/name_index.h"
#include "format/text.h"

namespace aerie {
namespace {

constexpr uint64_t kMaxKeyBytes = 65535;  // as the format's description says
constexpr uint64_t kMaxTensorNameBytes = 256;
constexpr uint64_t kMaxEntries = uint64_t{1} << 24;
constexpr uint32_t kMaxRank = 4;
constexpr int kMaxArrayDepth = 8;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMinAlignment = 8;

// What one entry takes at least: key length, one byte of key, type, one byte of value; and name
// length, one byte of name, rank, type, offset.
constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorInfoBytes = 8 + 1 + 4 + 4 + 8;

std::string in_key(std::string_view key) {
  return fmt::format("metadata key '{}'", printable(key));
}
std::string in_tensor(std::string_view name) {
  return fmt::format("tensor '{}'", printable(name));
}

Status read_name(ByteReader& reader, uint64_t max_bytes, std::string_view& name) {
  uint64_t length = 0;
  AERIE_RETURN_IF_ERROR(reader.read(length));
  if (length == 0) return invalid_data("the name is empty");
  if (length > max_bytes) {
    return invalid_data("the name is {} bytes long, more than {}", length, max_bytes);
  }
  AERIE_RETURN_IF_ERROR(reader.read_text(length, name));
  if (!is_valid_utf8(name)) return invalid_data("the name '{}' is not UTF-8", printable(name));
  if (name.find('\0') != std::string_view::npos) {
    return invalid_data("the name '{}' contains a NUL byte", printable(name));
  }
  return Status();
}

Status read_text_value(ByteReader& reader, std::string_view& text) {
  uint64_t length = 0;
  AERIE_RETURN_IF_ERROR(reader.read(length));
  return reader.read_text(length, text);
}

Status read_bool(ByteReader& reader, bool& value) {
  uint8_t byte = 0;
  AERIE_RETURN_IF_ERROR(reader.read(byte));
  if (byte > 1) return invalid_data("a boolean has the value {}; it must be 0 or 1", byte);
  value = byte != 0;
  return Status();
}

Status read_type(ByteReader& reader, GgufValueType& type) {
  uint32_t id = 0;
  AERIE_RETURN_IF_ERROR(reader.read(id));
  if (id >= kGgufValueTypeCount) {
    return invalid_data("value type {} is unknown (0 to {} are defined)", id,
                        kGgufValueTypeCount - 1);
  }
  type = static_cast<GgufValueType>(id);
  return Status();
}

Status read_scalar(ByteReader& reader, GgufValueType type, MetadataScalar& out) {
  if (type == GgufValueType::kBool) {
    bool value = false;
    AERIE_RETURN_IF_ERROR(read_bool(reader, value));
    out = value;
    return Status();
  }
  if (type == GgufValueType::kString) {
    std::string_view value;
    AERIE_RETURN_IF_ERROR(read_text_value(reader, value));
    out = value;
    return Status();
  }
  return with_number_type(type, [&]<typename T>(T value) {
    AERIE_RETURN_IF_ERROR(reader.read(value));
    out = widen(value);
    return Status();
  });
}

struct ArrayHeader {
  GgufValueType type = GgufValueType::kU8;
  uint64_t count = 0;
};

// After this, `count` elements of the least possible size fit into what is left of the file.
Status read_array_header(ByteReader& reader, ArrayHeader& out) {
  AERIE_RETURN_IF_ERROR(read_type(reader, out.type));
  AERIE_RETURN_IF_ERROR(reader.read(out.count));
  const auto min_bytes = static_cast<uint64_t>(gguf_value_type_info(out.type).min_bytes);
  Status status = reader.require(out.count, min_bytes);
  return status.ok() ? status : status.with_context(fmt::format("array of {}", out.count));
}

Status skip_array_elements(ByteReader& reader, const ArrayHeader& array, int depth) {
  if (array.type != GgufValueType::kArray && array.type != GgufValueType::kString) {
    const auto bytes = static_cast<uint64_t>(gguf_value_type_info(array.type).min_bytes);
    return reader.skip(array.count * bytes);
  }
  if (depth == kMaxArrayDepth) return invalid_data("arrays are nested more than {} deep", depth);
  for (uint64_t i = 0; i < array.count; ++i) {
    if (array.type == GgufValueType::kString) {
      std::string_view ignored;
      AERIE_RETURN_IF_ERROR(read_text_value(reader, ignored));
    } else {
      ArrayHeader inner;
      AERIE_RETURN_IF_ERROR(read_array_header(reader, inner));
      AERIE_RETURN_IF_ERROR(skip_array_elements(reader, inner, depth + 1));
    }
  }
  return Status();
}

template <typename T, typename Read>
Status read_elements(uint64_t count, MetadataArray& out, const Read& read) {
  std::vector<T> elements;
  elements.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    T element{};
    AERIE_RETURN_IF_ERROR(read(element));
    elements.push_back(element);
  }
  out = std::move(elements);
  return Status();
}

Status read_array(ByteReader& reader, MetadataValue& out) {
  ArrayHeader array;
  AERIE_RETURN_IF_ERROR(read_array_header(reader, array));
  out.type_name = gguf_value_type_info(array.type).array_name;
  if (array.type == GgufValueType::kArray) return skip_array_elements(reader, array, 1);

  MetadataArray& elements = out.value.emplace<MetadataArray>();
  if (array.type == GgufValueType::kBool) {
    return read_elements<bool>(array.count, elements,
                               [&](bool& value) { return read_bool(reader, value); });
  }
  if (array.type == GgufValueType::kString) {
    return read_elements<std::string_view>(array.count, elements, [&](std::string_view& text) {
      return read_text_value(reader, text);
    });
  }
  return with_number_type(array.type, [&]<typename T>(T) {
    return read_elements<Wide<T>>(array.count, elements, [&](Wide<T>& wide) {
      T value{};
      AERIE_RETURN_IF_ERROR(reader.read(value));
      wide = widen(value);
      return Status();
    });
  });
}

Status read_value(ByteReader& reader, MetadataValue& out) {
  GgufValueType type = GgufValueType::kU8;
  AERIE_RETURN_IF_ERROR(read_type(reader, type));
  if (type == GgufValueType::kArray) return read_array(reader, out);
  out.type_name = gguf_value_type_info(type).name;
  return read_scalar(reader, type, out.value.emplace<MetadataScalar>());
}

Status read_metadata(ByteReader& reader, uint64_t count, GgufContents& out) {
  out.metadata.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    auto& [key, value] = out.metadata.emplace_back();
    if (Status status = read_name(reader, kMaxKeyBytes, key); !status.ok()) {
      return status.with_context(fmt::format("metadata key {} of {}", i + 1, count));
    }
    if (Status status = read_value(reader, value); !status.ok()) {
      return status.with_context(in_key(key));
    }
  }
  NameIndex index;
  const auto twin =
      index.build(static_cast<uint32_t>(count), [&](size_t i) { return out.metadata[i].first; });
  if (twin) return invalid_data("{} occurs twice", in_key(*twin));
  return Status();
}

Status read_shape(ByteReader& reader, Shape& shape) {
  uint32_t rank = 0;
  AERIE_RETURN_IF_ERROR(reader.read(rank));
  if (rank > kMaxRank) return invalid_data("it has {} dimensions, more than {}", rank, kMaxRank);
  int64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    uint64_t size = 0;
    AERIE_RETURN_IF_ERROR(reader.read(size));
    if (size == 0) return invalid_data("dimension {} has size 0", i);
    const auto room = static_cast<uint64_t>(std::numeric_limits<int64_t>::max() / elements);
    if (size > room) {
      return invalid_data("dimension {} of size {} makes it too large", i, size);
    }
    shape[i] = static_cast<int64_t>(size);
    elements *= shape[i];
  }
  return Status();
}

// Name, shape, type, the bytes that these take, and the offset from the start of the tensor data.
Status read_tensor_info(ByteReader& reader, TensorInfo& tensor) {
  AERIE_RETURN_IF_ERROR(read_shape(reader, tensor.shape));
  AERIE_RETURN_IF_ERROR(reader.read(tensor.type_id));
  uint64_t offset = 0;
  AERIE_RETURN_IF_ERROR(reader.read(offset));
  if (offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return invalid_data("offset {} is beyond any file", offset);
  }
  tensor.offset = static_cast<int64_t>(offset);

  const GgmlType* type = find_ggml_type(tensor.type_id);
  tensor.type_name = type == nullptr ? "unknown" : type->name;
  if (type == nullptr) return Status();
  tensor.dtype = type->dtype;
  if (tensor.shape[0] % type->block_elements != 0) {
    return invalid_data("rows of {} elements do not consist of whole {} blocks of {}",
                        tensor.shape[0], type->name, type->block_elements);
  }
  // read_shape() has seen to it that the product of the sizes fits.
  const int64_t blocks =
      tensor.shape[0] / type->block_elements * tensor.shape[1] * tensor.shape[2] * tensor.shape[3];
  if (blocks > std::numeric_limits<int64_t>::max() / type->block_bytes) {
    return invalid_data("shape {} makes it too large", shape_to_string(tensor.shape));
  }
  tensor.bytes = blocks * type->block_bytes;
  return Status();
}

Status read_tensor_infos(ByteReader& reader, uint64_t count, GgufContents& out) {
  out.tensors.reserve(static_cast<size_t>(count));
  for (uint64_t i = 0; i < count; ++i) {
    TensorInfo& tensor = out.tensors.emplace_back();
    if (Status status = read_name(reader, kMaxTensorNameBytes, tensor.name); !status.ok()) {
      return status.with_context(fmt::format("tensor {} of {}", i + 1, count));
    }
    if (Status status = read_tensor_info(reader, tensor); !status.ok()) {
      return status.with_context(in_tensor(tensor.name));
    }
  }
  NameIndex index;
  const auto twin =
      index.build(static_cast<uint32_t>(count), [&](size_t i) { return out.tensors[i].name; });
  if (twin) return invalid_data("{} occurs twice", in_tensor(*twin));
  return Status();
}

Status find_alignment(const GgufContents& contents, uint64_t& alignment) {
  alignment = kDefaultAlignment;
  const auto entry = std::ranges::find_if(
      contents.metadata, [](const auto& pair) { return pair.first == "general.alignment"; });
  if (entry == contents.metadata.end()) return Status();
  const MetadataValue& value = entry->second;
  const auto* scalar = std::get_if<MetadataScalar>(&value.value);
  const auto* number = scalar == nullptr ? nullptr : std::get_if<uint64_t>(scalar);
  if (number == nullptr) {
    return invalid_data("metadata key 'general.alignment' is of type {}; it must be u32",
                        value.type_name);
  }
  if (*number < kMinAlignment || !std::has_single_bit(*number)) {
    return invalid_data(
        "metadata key 'general.alignment' is {}; it must be a power of two and at least {}",
        *number, kMinAlignment);
  }
  alignment = *number;
  return Status();
}

// Makes the tensors' offsets absolute. `data_start` is where the tensor data begins.
Status place_tensors(uint64_t data_start, uint64_t alignment, uint64_t file_bytes,
                     std::vector<TensorInfo>& tensors) {
  const TensorInfo* outside = nullptr;
  uint64_t end = 0;
  for (TensorInfo& tensor : tensors) {
    const auto offset = static_cast<uint64_t>(tensor.offset);
    if (offset % alignment != 0) {
      return invalid_data("{}: offset {} is not a multiple of the alignment {}",
                          in_tensor(tensor.name), offset, alignment);
    }
    // Neither sum can wrap: each term but the last is below 2^63, and the last is checked.
    const uint64_t start = data_start + offset;
    const auto bytes = static_cast<uint64_t>(tensor.bytes);
    if (start > file_bytes || bytes > file_bytes - start) {
      if (outside == nullptr) outside = &tensor;
    }
    end = std::max(end, start > UINT64_MAX - bytes ? UINT64_MAX : start + bytes);
    tensor.offset = static_cast<int64_t>(std::min<uint64_t>(start, INT64_MAX));
  }
  if (outside == nullptr) return Status();
  return invalid_data(
      "{}: offset {} + {} bytes ends beyond the file's {} bytes: {} bytes are missing in all (the "
      "download may be incomplete)",
      in_tensor(outside->name), outside->offset, outside->bytes, file_bytes, end - file_bytes);
}

// Tensors of unknown types are left out: nobody knows where they end.
Status check_overlap(const std::vector<TensorInfo>& tensors) {
  std::vector<uint32_t> order;
  order.reserve(tensors.size());
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].bytes > 0) order.push_back(i);
  }
  std::ranges::sort(order,
                    [&](uint32_t a, uint32_t b) { return tensors[a].offset < tensors[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = tensors[order[i - 1]];
    const TensorInfo& after = tensors[order[i]];
    if (before.offset + before.bytes > after.offset) {
      return invalid_data("{} and {} overlap in the file", in_tensor(before.name),
                          in_tensor(after.name));
    }
  }
  return Status();
}

Status check_magic(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) return invalid_data("is empty, not a GGUF file");
  if (text.starts_with("GGUF")) return Status();
  if (is_git_lfs_pointer(text)) {
    return invalid_data(
        "is not a GGUF file but a Git LFS pointer to one; fetch it with: git lfs pull");
  }
  return invalid_data("is not a GGUF file: it starts with \"{}\"", printable(text.substr(0, 16)));
}

Status check_version(uint32_t version) {
  if (version == 2 || version == 3) return Status();
  if ((version & 0xFFFFFF) == 0 && version != 0) {
    return not_supported(
        "is a big-endian GGUF file (version {}); only little-endian ones are read: convert it with "
        "llama.cpp's gguf_convert_endian.py",
        version >> 24);
  }
  return not_supported("is a GGUF file of version {}; only versions 2 and 3 are read", version);
}

Status parse(std::span<const std::byte> bytes, GgufContents& out) {
  AERIE_RETURN_IF_ERROR(check_magic(bytes));
  ByteReader reader(bytes);
  AERIE_RETURN_IF_ERROR(reader.skip(4));
  AERIE_RETURN_IF_ERROR(reader.read(out.version));
  AERIE_RETURN_IF_ERROR(check_version(out.version));

  uint64_t tensor_count = 0, metadata_count = 0;
  AERIE_RETURN_IF_ERROR(reader.read(tensor_count));
  AERIE_RETURN_IF_ERROR(reader.read(metadata_count));
  if (tensor_count > kMaxEntries || metadata_count > kMaxEntries) {
    return invalid_data("{} tensors and {} metadata keys are declared; at most {} of each are read",
                        tensor_count, metadata_count, kMaxEntries);
  }
  AERIE_RETURN_IF_ERROR(reader.require(metadata_count, kMinMetadataBytes)
                            .with_context(fmt::format("{} metadata keys", metadata_count)));
  AERIE_RETURN_IF_ERROR(read_metadata(reader, metadata_count, out));
  AERIE_RETURN_IF_ERROR(reader.require(tensor_count, kMinTensorInfoBytes)
                            .with_context(fmt::format("{} tensors", tensor_count)));
  AERIE_RETURN_IF_ERROR(read_tensor_infos(reader, tensor_count, out));

  uint64_t alignment = 0;
  AERIE_RETURN_IF_ERROR(find_alignment(out, alignment));
  if (alignment > bytes.size() && tensor_count > 0) {
    return invalid_data("metadata key 'general.alignment' is {}, more than the file's {} bytes",
                        alignment, bytes.size());
  }
  const uint64_t data_start = (reader.offset() + alignment - 1) & ~(alignment - 1);
  AERIE_RETURN_IF_ERROR(place_tensors(data_start, alignment, bytes.size(), out.tensors));
  AERIE_RETURN_IF_ERROR(check_overlap(out.tensors));
  return Status();
}

}  // namespace

Expected<GgufContents> parse_gguf(std::span<const std::byte> bytes) {
  GgufContents contents;
  AERIE_RETURN_IF_ERROR(parse(bytes, contents));
  return contents;
}

}  // namespace aerie

#include "format/safetensors/safetensors_write.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/errors.h"
#include "base/progress.h"
#include "format/name_index.h"
#include "format/output_file.h"
#include "format/text.h"

namespace aerie {
namespace {

constexpr const char* kWrittenMetadataKey = "__metadata__";
constexpr size_t kAlignment = 8;
constexpr size_t kMaxWrittenHeaderBytes = 100'000'000;  // what readers take

Status refuse(const SafetensorsEntry& tensor, std::string_view why) {
  return invalid_argument("tensor '{}' {}", printable(tensor.name), why);
}

Expected<int64_t> bytes_of(const SafetensorsEntry& tensor) {
  const int64_t bits = safetensors_type_info(tensor.type).bits;
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) {
    if (size < 0) return refuse(tensor, fmt::format("has the size {}", size));
    if (size > std::numeric_limits<int64_t>::max() / bits / std::max<int64_t>(elements, 1)) {
      return refuse(tensor, "has more bytes than a file can hold");
    }
    elements *= size;
  }
  if (elements * bits % 8 != 0) return refuse(tensor, "does not fill whole bytes");
  return elements * bits / 8;
}

Status check_metadata(std::span<const std::pair<std::string, std::string>> metadata) {
  NameIndex index;
  const auto twin = index.build(static_cast<uint32_t>(metadata.size()),
                                [&](uint32_t i) -> std::string_view { return metadata[i].first; });
  if (!twin) return {};
  return invalid_argument("metadata key '{}' is there twice", printable(*twin));
}

Status check_names(std::span<const SafetensorsEntry> tensors) {
  for (const SafetensorsEntry& tensor : tensors) {
    const std::string& name = tensor.name;
    if (name.empty() || name == kWrittenMetadataKey || name.find('\0') != std::string::npos ||
        !is_valid_utf8(name)) {
      return refuse(tensor, "has a name that safetensors files cannot have");
    }
  }
  NameIndex index;
  const auto twin = index.build(static_cast<uint32_t>(tensors.size()),
                                [&](uint32_t i) -> std::string_view { return tensors[i].name; });
  if (!twin) return {};
  return invalid_argument("tensor '{}' is there twice", printable(*twin));
}

std::vector<size_t> order_of(std::span<const SafetensorsEntry> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    const int wide_a = safetensors_type_info(tensors[a].type).bits;
    const int wide_b = safetensors_type_info(tensors[b].type).bits;
    return wide_a != wide_b ? wide_a > wide_b : tensors[a].name < tensors[b].name;
  });
  return order;
}

// Length and JSON, padded so that the tensors are aligned.
Expected<std::string> header_of(std::span<const SafetensorsEntry> tensors,
                                std::span<const size_t> order, std::span<const int64_t> bytes,
                                std::span<const std::pair<std::string, std::string>> metadata) {
  // Objects of many keys are slow to add to, as each is compared with all: the text is put
  // together.
  const auto quoted = [](const std::string& text) {
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string header = "{";
  if (!metadata.empty()) {
    std::vector<std::string> entries;
    for (const auto& [key, value] : metadata) entries.push_back(quoted(key) + ":" + quoted(value));
    header += fmt::format("\"{}\":{{{}}}", kWrittenMetadataKey, fmt::join(entries, ","));
  }
  int64_t offset = 0;
  for (const size_t i : order) {
    if (bytes[i] > std::numeric_limits<int64_t>::max() - offset) {
      return refuse(tensors[i], "does not fit into the file with those before it");
    }
    if (header.size() > 1) header += ',';
    header += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          quoted(tensors[i].name), safetensors_type_info(tensors[i].type).name,
                          fmt::join(tensors[i].shape, ","), offset, offset + bytes[i]);
    offset += bytes[i];
  }
  header += '}';
  header.resize((header.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  if (header.size() > kMaxWrittenHeaderBytes) {
    return invalid_argument("the names, types and shapes take {} bytes; at most {} can be read",
                            header.size(), kMaxWrittenHeaderBytes);
  }
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header;
}

}  // namespace

Expected<int64_t> write_safetensors(
    const std::string& path, std::span<const SafetensorsEntry> tensors,
    std::span<const std::pair<std::string, std::string>> metadata,
    const std::function<Status(size_t index, const ByteSink& sink)>& values, unsigned mode) {
  AERIE_RETURN_IF_ERROR(check_names(tensors).with_context(path));
  AERIE_RETURN_IF_ERROR(check_metadata(metadata).with_context(path));
  std::vector<int64_t> bytes;
  for (const SafetensorsEntry& tensor : tensors) {
    const Expected<int64_t> size = bytes_of(tensor);
    if (!size.ok()) return size.status().with_context(path);
    bytes.push_back(*size);
  }
  const std::vector<size_t> order = order_of(tensors);
  const Expected<std::string> header = header_of(tensors, order, bytes, metadata);
  if (!header.ok()) return header.status().with_context(path);
  AERIE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path, mode));
  AERIE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(*header))));
  Progress progress("writing " + path, std::accumulate(bytes.begin(), bytes.end(), file.size()),
                    ProgressUnit::kBytes);
  for (const size_t i : order) {
    const int64_t end = file.size() + bytes[i];
    AERIE_RETURN_IF_ERROR(
        values(i, [&](std::span<const std::byte> part) { return file.write(part); }));
    progress.set(file.size());
    if (file.size() == end) continue;
    return internal_error("{}: tensor '{}' of {} bytes was given {} more or less", path,
                          printable(tensors[i].name), bytes[i], file.size() - end);
  }
  AERIE_RETURN_IF_ERROR(file.commit());
  return file.size();
}

}  // namespace aerie

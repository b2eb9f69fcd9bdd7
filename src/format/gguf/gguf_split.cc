#include "format/gguf/gguf_split.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"

namespace aerie {
namespace {

constexpr std::string_view kNumber = "split.no";
constexpr std::string_view kCount = "split.count";
constexpr std::string_view kTensors = "split.tensors.count";
constexpr int64_t kMaxParts = 99999;  // the names have five digits

// None if the key is absent.
Expected<std::optional<int64_t>> find_count(const Metadata& metadata, std::string_view key) {
  const auto entry =
      std::ranges::find_if(metadata, [&](const auto& pair) { return pair.first == key; });
  if (entry == metadata.end()) return std::optional<int64_t>();
  if (const auto* scalar = std::get_if<MetadataScalar>(&entry->second.value)) {
    const auto* number = std::get_if<int64_t>(scalar);
    if (number != nullptr && *number >= 0) return std::optional(*number);
    const auto* positive = std::get_if<uint64_t>(scalar);
    if (positive != nullptr && *positive <= INT64_MAX) {
      return std::optional(static_cast<int64_t>(*positive));
    }
  }
  return invalid_data("metadata key '{}' is not a number of things", key);
}

}  // namespace

bool is_gguf_split_key(std::string_view key) {
  return key == kNumber || key == kCount || key == kTensors;
}

Expected<GgufSplit> read_gguf_split(const Metadata& metadata) {
  GgufSplit split;
  AERIE_ASSIGN_OR_RETURN(const auto count, find_count(metadata, kCount));
  if (!count || *count <= 1) return split;
  AERIE_ASSIGN_OR_RETURN(const auto number, find_count(metadata, kNumber));
  AERIE_ASSIGN_OR_RETURN(split.tensors, find_count(metadata, kTensors));
  split.count = *count;
  split.number = number.value_or(0);
  if (split.count > kMaxParts) {
    return invalid_data("metadata key '{}' is {}, more than {}", kCount, split.count, kMaxParts);
  }
  if (split.number >= split.count) {
    return invalid_data("metadata key '{}' is {}, but there are {} parts, counted from 0", kNumber,
                        split.number, split.count);
  }
  return split;
}

std::string gguf_split_path(const std::string& prefix, int64_t number, int64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number + 1, count);
}

Expected<std::string> gguf_split_prefix(const std::string& path, const GgufSplit& split) {
  const std::string ending = gguf_split_path("", split.number, split.count);
  if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size());
  return invalid_data(
      "{}: is part {} of {} of a model, so its name must end in {}: the other parts are found by "
      "their names",
      path, split.number + 1, split.count, ending);
}

}  // namespace aerie

// Builds safetensors files in memory, for tests: valid ones by default, broken ones on request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace aerie::test {

// Header length, header and data, whatever they are.
std::vector<std::byte> safetensors_bytes(std::string_view header, std::span<const std::byte> data);

Status write_bytes(const std::string& path, std::span<const std::byte> bytes);

// Usage:
//   SafetensorsWriter writer;
//   writer.add("lm_head.weight", "F32", {100, 64}, bytes).write(path);
// Nothing is checked. Names must need no escapes in JSON.
class SafetensorsWriter {
 public:
  // `shape` has the outermost size first.
  SafetensorsWriter& add(std::string_view name, std::string_view dtype,
                         const std::vector<int64_t>& shape, std::span<const std::byte> data);
  SafetensorsWriter& add(std::string_view name, const std::vector<int64_t>& shape,
                         const std::vector<float>& values);
  SafetensorsWriter& add_metadata(std::string_view key, std::string_view value);

  std::string header() const;
  std::vector<std::byte> bytes() const;
  Status write(const std::string& path) const;

 private:
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::string entries_;
  std::vector<std::byte> data_;
};

}  // namespace aerie::test

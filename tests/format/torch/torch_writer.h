// Builds zip archives and pickles in memory, for tests: valid ones, and broken ones on request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace aerie::test {

std::vector<std::byte> bytes_of_text(std::string_view text);

// Little-endian.
std::string number_text(uint64_t value, size_t bytes);

struct ZipPart {
  std::string name;
  std::string data;
  uint16_t method = 0;
  uint16_t flags = 0;
};

// Stored members one after the other, their directory and its end. With `large`, sizes and offsets
// stand in the zip64 fields, and the end is a zip64 one too.
std::string zip_text(const std::vector<ZipPart>& parts, bool large = false);

// What torch.save() would have written of a pickle and storages by their keys.
std::string torch_text(std::string_view pickle,
                       const std::vector<std::pair<std::string, std::string>>& storages = {});

// Instructions of pickles.
std::string pickle_string(std::string_view text);  // BINUNICODE
std::string pickle_integer(int32_t value);         // BININT
std::string pickle_tuple(std::string_view items);  // MARK ... TUPLE
std::string pickle_global(std::string_view module, std::string_view name);
// A tensor over the storage of this type and key.
struct PickleTensor {
  std::string storage = "FloatStorage";
  std::string key = "0";
  int32_t stored = 0;  // elements
  int32_t offset = 0;
  std::vector<int32_t> shape, strides;
  std::string more = {};  // behind requires_grad and hooks
};
std::string pickle_tensor(const PickleTensor& tensor);
// Protocol 2, a dict of these keys and values, STOP.
std::string pickle_dict(const std::vector<std::pair<std::string, std::string>>& entries);

}  // namespace aerie::test

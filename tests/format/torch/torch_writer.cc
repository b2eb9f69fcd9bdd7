#include "tests/format/torch/torch_writer.h"

#include <algorithm>

namespace aerie::test {
namespace {

using namespace std::string_literals;

constexpr uint64_t kMask32 = 0xFFFFFFFF;

// The zip64 field of sizes and, in the directory, of the offset.
std::string large_field(uint64_t size, const uint64_t* offset) {
  std::string values = number_text(size, 8) + number_text(size, 8);
  if (offset != nullptr) values += number_text(*offset, 8);
  return number_text(1, 2) + number_text(values.size(), 2) + values;
}

}  // namespace

std::vector<std::byte> bytes_of_text(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::transform(text.begin(), text.end(), bytes.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

std::string number_text(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i, value = value >> 8) text += static_cast<char>(value & 0xFF);
  return text;
}

std::string zip_text(const std::vector<ZipPart>& parts, bool large) {
  std::string text, directory;
  for (const ZipPart& part : parts) {
    const uint64_t offset = text.size();
    const uint64_t size = large ? kMask32 : part.data.size();
    const std::string shared = number_text(part.flags, 2) + number_text(part.method, 2) +
                               number_text(0, 8) + number_text(size, 4) + number_text(size, 4) +
                               number_text(part.name.size(), 2);
    const std::string extra = large ? large_field(part.data.size(), nullptr) : "";
    const std::string all_extra = large ? large_field(part.data.size(), &offset) : "";
    text += "PK\x03\x04"s + number_text(45, 2) + shared + number_text(extra.size(), 2) + part.name +
            extra + part.data;
    directory += "PK\x01\x02"s + number_text(45, 2) + number_text(45, 2) + shared +
                 number_text(all_extra.size(), 2) + number_text(0, 10) +
                 number_text(large ? kMask32 : offset, 4) + part.name + all_extra;
  }
  const uint64_t begin = text.size();
  text += directory;
  const uint64_t end = text.size();
  if (large) {
    text += "PK\x06\x06"s + number_text(44, 8) + number_text(45, 2) + number_text(45, 2) +
            number_text(0, 8) + number_text(parts.size(), 8) + number_text(parts.size(), 8) +
            number_text(directory.size(), 8) + number_text(begin, 8);
    text += "PK\x06\x07"s + number_text(0, 4) + number_text(end, 8) + number_text(1, 4);
  }
  const uint64_t count = large ? 0xFFFF : parts.size();
  return text + "PK\x05\x06" + number_text(0, 4) + number_text(count, 2) + number_text(count, 2) +
         number_text(large ? kMask32 : directory.size(), 4) +
         number_text(large ? kMask32 : begin, 4) + number_text(0, 2);
}

std::string torch_text(std::string_view pickle,
                       const std::vector<std::pair<std::string, std::string>>& storages) {
  std::vector<ZipPart> parts = {{"archive/data.pkl", std::string(pickle)},
                                {"archive/byteorder", "little"}};
  for (const auto& [key, data] : storages) parts.push_back({"archive/data/" + key, data});
  parts.push_back({"archive/version", "3\n"});
  return zip_text(parts);
}

std::string pickle_string(std::string_view text) {
  return std::string("X").append(number_text(text.size(), 4)).append(text);
}

std::string pickle_integer(int32_t value) {
  return std::string("J").append(number_text(static_cast<uint32_t>(value), 4));
}

std::string pickle_tuple(std::string_view items) {
  return "("s + std::string(items) + "t";
}

std::string pickle_global(std::string_view module, std::string_view name) {
  return "c"s + std::string(module) + "\n" + std::string(name) + "\n";
}

std::string pickle_tensor(const PickleTensor& tensor) {
  const auto sizes = [](const std::vector<int32_t>& values) {
    std::string items;
    for (const int32_t value : values) items += pickle_integer(value);
    return pickle_tuple(items);
  };
  const std::string id = pickle_tuple(
      pickle_string("storage") + pickle_global("torch", tensor.storage) +
      pickle_string(tensor.key) + pickle_string("cpu") + pickle_integer(tensor.stored));
  const std::string hooks = pickle_global("collections", "OrderedDict") + ")R";
  return pickle_global("torch._utils", "_rebuild_tensor_v2") +
         pickle_tuple(id + "Q" + pickle_integer(tensor.offset) + sizes(tensor.shape) +
                      sizes(tensor.strides) + "\x89" + hooks + tensor.more) +
         "R";
}

std::string pickle_dict(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string text = "\x80\x02}(";
  for (const auto& [key, value] : entries) text += pickle_string(key) + value;
  return text + "u.";
}

}  // namespace aerie::test

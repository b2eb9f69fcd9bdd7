// Whatever the bytes are, they are a safetensors file that can be read through or they are refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "format/safetensors/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

namespace aerie {
namespace {

// Reads every byte, so that a sanitizer sees data that leave the file. The tensors must be as many
// bytes as the file has behind its header.
void touch(const SafetensorsFile& file, size_t data_bytes) {
  uint64_t sum = 0;
  size_t bytes = 0;
  for (const SafetensorsTensor& tensor : file.tensors()) {
    require(!tensor.name.empty() && file.find(tensor.name) == &tensor);
    const int bits = safetensors_type_info(tensor.type).bits;
    require(tensor.elements() >= 0);
    require(static_cast<size_t>(tensor.elements()) * static_cast<size_t>(bits) ==
            tensor.data.size() * 8);
    for (const std::byte byte : tensor.data) sum += static_cast<uint8_t>(byte);
    bytes += tensor.data.size();
    file.release(tensor.data);
  }
  require(bytes == data_bytes);
  for (const auto& [key, value] : file.metadata()) sum += key.size() + value.size();
  volatile uint64_t sink = sum;
  (void)sink;
}

}  // namespace
}  // namespace aerie

AERIE_FUZZ_TARGET(safetensors) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = aerie::SafetensorsFile::parse(bytes, "fuzz");
  if (!file.ok()) {
    aerie::require(file.status().message().starts_with("fuzz: "));
    return 0;
  }
  uint64_t header = 0;
  for (size_t i = 0; i < 8; ++i) header |= uint64_t{data[i]} << (8 * i);
  aerie::touch(*file, size - 8 - static_cast<size_t>(header));
  return 0;
}

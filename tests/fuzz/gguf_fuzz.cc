// Whatever the bytes are, they are a GGUF file that can be read through or they are refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "format/gguf/gguf.h"
#include "tests/fuzz/fuzz_target.h"

namespace aerie {
namespace {

// Reads every byte, so that a sanitizer sees a view that leaves the file.
uint64_t sum(std::string_view text) {
  uint64_t total = 0;
  for (const char c : text) total += static_cast<uint8_t>(c);
  return total;
}

uint64_t touch_metadata(const GgufFile& file) {
  uint64_t total = 0;
  for (const auto& [key, value] : file.metadata()) {
    require(!key.empty() && file.find(key) == &value);
    total += sum(key) + sum(value.type_name);
    if (const auto text = file.string(key); text.ok()) total += sum(*text);
    if (const auto texts = file.strings(key); texts.ok()) {
      for (const std::string_view text : *texts) total += sum(text);
    }
    if (const auto numbers = file.numbers(key); numbers.ok()) total += numbers->size();
    total += file.integer(key).ok() + file.number(key).ok() + file.boolean(key).ok();
  }
  return total;
}

void touch_tensors(const GgufFile& file) {
  for (const TensorInfo& tensor : file.tensors()) {
    require(!tensor.name.empty() && file.find_tensor(tensor.name) == &tensor);
    require(tensor.offset >= 0 && tensor.bytes >= 0);
    require(tensor.offset + tensor.bytes <= file.file_bytes());
    require(file.tensor(tensor.name).ok() == tensor.dtype.has_value());
    if (!tensor.dtype) continue;
    const TensorView view = file.tensor(tensor.name).value();
    require(view.bytes() == tensor.bytes && view.elements() > 0);
    const int block = dtype_info(view.dtype).block_elements;
    std::vector<float> floats(static_cast<size_t>(block));
    dequantize(view.dtype, view.data, block, floats.data());
    dequantize(view.dtype, view.data + tensor.bytes - dtype_info(view.dtype).block_bytes, block,
               floats.data());
    file.release(view);
  }
}

}  // namespace
}  // namespace aerie

AERIE_FUZZ_TARGET(gguf) {
  const auto file = aerie::GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.ok()) {
    aerie::require(!file.status().message().empty());
    return 0;
  }
  volatile uint64_t sink = aerie::touch_metadata(**file);
  (void)sink;
  aerie::touch_tensors(**file);
  return 0;
}

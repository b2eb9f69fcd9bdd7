#include "format/torch/torch_tensor.h"

namespace aerie {

int64_t element_bytes(SafetensorsType type) {
  return safetensors_type_info(type).bits / 8;
}

int64_t TorchTensor::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

int64_t TorchTensor::bytes() const {
  return elements() * element_bytes(type);
}

bool TorchTensor::is_contiguous() const {
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

Status TorchTensor::read(const std::function<Status(std::span<const std::byte>)>& sink) const {
  constexpr size_t kChunk = size_t{1} << 20;
  const auto total = static_cast<size_t>(bytes());
  if (total == 0) return {};
  if (is_contiguous()) return sink(storage.first(total));
  const auto width = static_cast<size_t>(element_bytes(type));
  // The inner sizes may lie as they should.
  size_t outer = shape.size();
  int64_t run = 1;
  for (; strides[outer - 1] == run || shape[outer - 1] == 1; --outer) run *= shape[outer - 1];
  const size_t run_bytes = static_cast<size_t>(run) * width;
  std::vector<std::byte> chunk;
  std::vector<int64_t> index(outer, 0);
  size_t at = 0;  // in elements
  for (size_t done = 0; done < total; done += run_bytes) {
    const std::byte* from = storage.data() + at * width;
    chunk.insert(chunk.end(), from, from + run_bytes);
    if (chunk.size() >= kChunk) {
      AERIE_RETURN_IF_ERROR(sink(chunk));
      chunk.clear();
    }
    for (size_t i = outer; i-- > 0;) {
      at += static_cast<size_t>(strides[i]);
      if (++index[i] < shape[i]) break;
      at -= static_cast<size_t>(index[i] * strides[i]);
      index[i] = 0;
    }
  }
  return chunk.empty() ? Status() : sink(chunk);
}

}  // namespace aerie

// Whatever the bytes are, they are a file of torch.save() that can be read through or they are
// refused; the same bytes as a pickle come to values or are refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "format/torch/pickle.h"
#include "format/torch/torch_file.h"
#include "tests/fuzz/fuzz_target.h"

namespace aerie {
namespace {

// Reads every element, so that a sanitizer sees those that leave their storage.
void touch(const TorchFile& file) {
  uint64_t sum = 0;
  for (const TorchTensor& tensor : file.tensors()) {
    require(!tensor.name.empty() && tensor.shape.size() == tensor.strides.size());
    int64_t bytes = 0;
    const Status status = tensor.read([&](std::span<const std::byte> part) {
      for (const std::byte byte : part) sum += static_cast<uint8_t>(byte);
      bytes += static_cast<int64_t>(part.size());
      return Status();
    });
    require(status.ok() && bytes == tensor.bytes());
  }
  for (const auto& [name, text] : file.values()) sum += name.size() + text.size();
  volatile uint64_t sink = sum;
  (void)sink;
}

void touch(const Pickle& pickle) {
  require(pickle.root() < pickle.size());
  for (PickleId id = 0; id < pickle.size(); ++id) {
    for (const PickleId item : pickle.items(id)) require(item < pickle.size());
  }
}

}  // namespace
}  // namespace aerie

AERIE_FUZZ_TARGET(torch) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto file = aerie::TorchFile::parse(bytes, "fuzz"); file.ok()) {
    aerie::touch(*file);
  } else {
    aerie::require(file.status().message().starts_with("fuzz: "));
  }
  if (const auto pickle = aerie::Pickle::parse(bytes, "fuzz"); pickle.ok()) {
    aerie::touch(*pickle);
  } else {
    aerie::require(pickle.status().message().starts_with("fuzz: "));
  }
  return 0;
}

#include "tensor/tensor.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace aerie {

std::string shape_to_string(const Shape& shape) {
  size_t rank = shape.size();
  while (rank > 1 && shape[rank - 1] == 1) --rank;
  std::string text = "[";
  for (size_t i = 0; i < rank; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

Expected<Buffer> Buffer::allocate(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const bool large = bytes >= kHugePage;
  const size_t alignment = large ? kHugePage : kAlignment;
  if (bytes > SIZE_MAX - alignment) {
    return Status(StatusCode::kResourceExhausted,
                  "cannot allocate " + std::to_string(bytes) + " bytes");
  }
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = nullptr;
  if (rounded > 0 && posix_memalign(&memory, alignment, rounded) != 0) {
    return Status(StatusCode::kResourceExhausted,
                  "cannot allocate " + std::to_string(bytes) + " bytes of memory");
  }
  // Streaming weights through 4 KiB pages costs TLB misses; the advice may be ignored.
  if (large) madvise(memory, rounded, MADV_HUGEPAGE);
  if (rounded > 0) std::memset(memory, 0, rounded);
  Buffer buffer;
  buffer.data_.reset(static_cast<std::byte*>(memory));
  buffer.size_ = bytes;
  return buffer;
}

void Buffer::Free::operator()(std::byte* p) const {
  std::free(p);
}

}  // namespace aerie

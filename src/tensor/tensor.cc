#include "tensor/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
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

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Whole huge pages straight from the system, which gives zeros; null if there are none. A block of
// the heap may have been used before, and would have to be cleared by this thread.
std::byte* map_huge_pages(size_t bytes) {
  const size_t mapped = bytes + kHugePage;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(memory);
  const size_t before =
      round_up(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  if (before > 0) munmap(begin, before);
  munmap(begin + before + bytes, mapped - before - bytes);
  // Streaming weights through 4 KiB pages costs TLB misses; the advice may be ignored.
  madvise(begin + before, bytes, MADV_HUGEPAGE);
  return begin + before;
}

}  // namespace

Expected<Buffer> Buffer::allocate(size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  std::byte* memory = nullptr;
  if (bytes >= kHugePage && bytes <= SIZE_MAX - 2 * kHugePage) {
    const size_t rounded = round_up(bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    buffer.data_.get_deleter().mapped = rounded;
    memory = map_huge_pages(rounded);
  } else if (bytes < kHugePage) {
    const size_t rounded = round_up(bytes, kAlignment);
    memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
    if (memory != nullptr) std::memset(memory, 0, rounded);
  }
  if (memory == nullptr) {
    return Status(StatusCode::kResourceExhausted,
                  "cannot allocate " + std::to_string(bytes) + " bytes of memory");
  }
  buffer.data_.reset(memory);
  buffer.size_ = bytes;
  return buffer;
}

void Buffer::Free::operator()(std::byte* p) const {
  if (mapped > 0) {
    munmap(p, mapped);
  } else {
    std::free(p);
  }
}

}  // namespace aerie

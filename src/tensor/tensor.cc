#include "tensor/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/errors.h"

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

// From a multiple of the size of a huge page on, straight from the system, which gives zeros; null
// if there is none. A block of the heap may have been used before, and would have to be cleared by
// this thread.
std::shared_ptr<void> map_memory(size_t bytes) {
  if (bytes > SIZE_MAX - 2 * kHugePage) return nullptr;
  bytes = round_up(bytes, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
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
  return {begin + before, [bytes](void* p) { munmap(p, bytes); }};
}

Status exhausted(size_t bytes) {
  return resource_exhausted("cannot allocate {} bytes of memory", bytes);
}

}  // namespace

Expected<Buffer> Buffer::allocate(size_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  std::byte* memory = nullptr;
  if (bytes >= kHugePage) {
    std::shared_ptr<void>& owner = buffer.data_.get_deleter().owner;
    owner = map_memory(bytes);
    memory = static_cast<std::byte*>(owner.get());
  } else {
    const size_t rounded = round_up(bytes, kAlignment);
    memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
    if (memory != nullptr) std::memset(memory, 0, rounded);
  }
  if (memory == nullptr) return exhausted(bytes);
  buffer.data_.reset(memory);
  buffer.size_ = bytes;
  return buffer;
}

void Buffer::Free::operator()(std::byte* p) const {
  if (owner == nullptr) std::free(p);
}

Expected<Arena> Arena::reserve(size_t bytes) {
  Arena arena;
  if (bytes == 0) return arena;
  arena.memory_ = map_memory(bytes);
  if (arena.memory_ == nullptr) return exhausted(bytes);
  arena.size_ = bytes;
  return arena;
}

Expected<Buffer> Arena::allocate(size_t bytes) {
  if (bytes == 0 || bytes > size_ - used_) return Buffer::allocate(bytes);
  Buffer buffer;
  buffer.data_.get_deleter().owner = memory_;
  buffer.data_.reset(static_cast<std::byte*>(memory_.get()) + used_);
  buffer.size_ = bytes;
  used_ = std::min(size_, used_ + round_up(bytes, Buffer::kAlignment));
  return buffer;
}

}  // namespace aerie

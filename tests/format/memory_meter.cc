#include "tests/format/memory_meter.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

aerie::test::MemoryUse use;
size_t held = 0;
size_t held_at_start = 0;

}  // namespace

// Not inlined: gcc would see free() meet memory that came from new and warn.
// The nothrow form too: AddressSanitizer's own would not pair with the operator delete below.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  void* memory = std::malloc(std::max<size_t>(size, 1));
  if (memory == nullptr) return nullptr;
  held += malloc_usable_size(memory) + sizeof(size_t);  // glibc keeps a word before each block
  use.total += size;
  use.largest = std::max(use.largest, size);
  use.peak = std::max(use.peak, held);
  return memory;
}
[[gnu::noinline]] void* operator new(size_t size) {
  if (void* memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (memory != nullptr) held -= malloc_usable_size(memory) + sizeof(size_t);
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  operator delete(memory);
}

void aerie::test::reset_memory_use() {
  held_at_start = held;
  use = {.peak = held};
}

aerie::test::MemoryUse aerie::test::memory_use() {
  return {use.total, use.largest, use.peak - held_at_start};
}

#include "tests/testing/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> count{0};

void* count_and_allocate(size_t size) noexcept {
  count.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(size == 0 ? 1 : size);
}

void* allocate(size_t size) {
  if (void* memory = count_and_allocate(size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) {
  return allocate(size);
}
void* operator new[](size_t size) {
  return allocate(size);
}
// Also these, as std::stable_sort calls them: AddressSanitizer brings its own, which would not pair
// with the operator delete below.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return count_and_allocate(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return count_and_allocate(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

int64_t aerie::allocations() {
  return count.load();
}

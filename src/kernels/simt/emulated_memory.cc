#include "kernels/simt/emulated_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/simt/sanitizers.h"

namespace simt {
namespace {

constexpr size_t kGrain = 256;
constexpr size_t kPage = 2 << 20;  // few of these are opened and closed in no time

// What an allocation takes, the bytes behind it included.
size_t room_of(size_t bytes) {
  return (bytes + kGrain - 1) / kGrain * kGrain + kGrain;
}

}  // namespace

void* EmulatedMemory::allocate(size_t bytes) {
  if (bytes == 0 || bytes > bytes_ || used_ + bytes > bytes_) return nullptr;
  if (base_ == nullptr) {
    void* memory = mmap(nullptr, kMostBytes + kPage, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    base_ = static_cast<char*>(memory) + (kPage - begin % kPage);
    madvise(base_, kMostBytes, MADV_HUGEPAGE);  // a wish
  }
  const size_t at = place_for(bytes);
  if (at + room_of(bytes) > kMostBytes) return nullptr;
  top_ = std::max(top_, (at + room_of(bytes) + kPage - 1) / kPage * kPage);
  protect(at, room_of(bytes), true);
  unpoison(base_ + at, room_of(bytes));
  std::memset(base_ + at, 0xff, room_of(bytes));
  poison(base_ + at + bytes, room_of(bytes) - bytes);
  protect(at, room_of(bytes), false);
  allocations_[at] = bytes;
  used_ += bytes;
  return base_ + at;
}

size_t EmulatedMemory::place_for(size_t bytes) const {
  size_t at = 0;
  for (const auto& [begin, size] : allocations_) {
    if (begin - at >= room_of(bytes)) break;
    at = begin + room_of(size);
  }
  return at;
}

bool EmulatedMemory::free(void* memory) {
  if (!owns(memory)) return false;
  const auto found = allocations_.find(static_cast<size_t>(static_cast<char*>(memory) - base_));
  if (found == allocations_.end()) return false;
  const auto [at, bytes] = *found;
  protect(at, room_of(bytes), true);
  check(at, bytes);
  protect(at, room_of(bytes), false);
  poison(base_ + at, room_of(bytes));
  used_ -= bytes;
  allocations_.erase(found);
  return true;
}

bool EmulatedMemory::owns(const void* memory) const {
  const auto* p = static_cast<const char*>(memory);
  return base_ != nullptr && p >= base_ && p < base_ + kMostBytes;
}

bool EmulatedMemory::holds(const void* memory, size_t bytes) const {
  if (!owns(memory)) return false;
  const auto at = static_cast<size_t>(static_cast<const char*>(memory) - base_);
  auto found = allocations_.upper_bound(at);
  if (found == allocations_.begin()) return false;
  --found;
  return bytes <= found->second && at - found->first <= found->second - bytes;
}

void EmulatedMemory::open() {
  protect(0, top_, true);
}

void EmulatedMemory::close() {
  for (const auto& [at, bytes] : allocations_) check(at, bytes);
  protect(0, top_, false);
}

void EmulatedMemory::check(size_t at, size_t bytes) const {
  if (SIMT_ASAN != 0) return;  // has seen it already
  for (size_t i = at + bytes; i < at + room_of(bytes); ++i) {
    if (static_cast<unsigned char>(base_[i]) == 0xff) continue;
    std::fprintf(stderr, "simt: byte %zu behind the device's allocation of %zu bytes was written\n",
                 i - at - bytes, bytes);
    std::abort();
  }
}

void EmulatedMemory::protect(size_t at, size_t bytes, bool on) const {
  const size_t begin = at / kPage * kPage, end = (at + bytes + kPage - 1) / kPage * kPage;
  if (begin == end) return;
  if (mprotect(base_ + begin, end - begin, on ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
    std::fprintf(stderr, "simt: the device's memory cannot be %s\n", on ? "opened" : "closed");
    std::abort();
  }
}

}  // namespace simt

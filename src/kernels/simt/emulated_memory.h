// The memory of the emulated device: one range of addresses, out of reach unless operations run.
#pragma once

#include <cstddef>
#include <map>

namespace simt {

// Not thread-safe. What is allocated is NaNs, lies at multiples of 256 bytes, and has 256 bytes
// behind it that nobody may write.
class EmulatedMemory {
 public:
  static constexpr size_t kMostBytes = size_t{16} << 30;

  // nullptr if there is not so much.
  void* allocate(size_t bytes);
  // False if `memory` is not what allocate() returned.
  bool free(void* memory);
  // Whether the bytes lie within one allocation.
  bool holds(const void* memory, size_t bytes) const;
  // Whether the address belongs to the device.
  bool owns(const void* memory) const;

  // Lets operations at it, and closes it again; ends the program if one of them wrote beyond an
  // allocation.
  void open();
  void close();

  size_t used() const { return used_; }
  size_t bytes() const { return bytes_; }
  void set_bytes(size_t bytes) { bytes_ = bytes; }

 private:
  size_t place_for(size_t bytes) const;
  void check(size_t at, size_t bytes) const;
  void protect(size_t at, size_t bytes, bool on) const;

  std::map<size_t, size_t> allocations_;  // where -> bytes
  char* base_ = nullptr;
  size_t used_ = 0, bytes_ = size_t{8} << 30, top_ = 0;
};

}  // namespace simt

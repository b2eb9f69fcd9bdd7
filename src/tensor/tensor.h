// Memory and views of it. A Buffer owns bytes; a TensorView describes bytes that somebody else
// owns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "tensor/dtype.h"

namespace aerie {

enum class Device : uint8_t { kCpu };

// Sizes with the fastest-varying one first, as GGUF has them: a weight that maps K inputs to N
// outputs is {K, N}, N rows of K. Unused sizes are 1.
using Shape = std::array<int64_t, 4>;

// "[576, 49152]"
std::string shape_to_string(const Shape& shape);

// Rows lie one after the other without gaps. Copies freely; the bytes must outlive it.
struct TensorView {
  DType dtype = DType::kF32;
  Device device = Device::kCpu;
  Shape shape = {0, 1, 1, 1};
  const std::byte* data = nullptr;

  bool valid() const { return data != nullptr; }
  int64_t row_length() const { return shape[0]; }
  int64_t rows() const { return shape[1] * shape[2] * shape[3]; }
  int64_t elements() const { return row_length() * rows(); }
  int64_t row_bytes() const { return dtype_bytes(dtype, row_length()); }
  int64_t bytes() const { return row_bytes() * rows(); }
  const std::byte* row(int64_t index) const { return data + index * row_bytes(); }
};

// Bytes aligned to kAlignment, all 0, freed with the object. Moves, does not copy.
//
// From 2 MiB on they come straight from the system, in huge pages if it has them, and have not been
// touched: a page is made when a thread first writes to it, in that thread's part of the memory.
class Buffer {
 public:
  static constexpr size_t kAlignment = 64;

  Buffer() = default;
  // kResourceExhausted when the memory cannot be had.
  static Expected<Buffer> allocate(size_t bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_.get()), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_.get()), size_ / sizeof(T)};
  }

 private:
  friend class Arena;
  struct Free {
    Free() : owner(nullptr) {}
    void operator()(std::byte* p) const;
    std::shared_ptr<void> owner;  // of the memory that this is a part of; null: from the heap
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t size_ = 0;
};

// Memory for buffers that live about as long as each other, side by side: a page of 2 MiB, if the
// system has them, holds several. Like a large buffer's, the memory is not touched. Moves, does not
// copy; one thread at a time. The buffers may outlive it.
class Arena {
 public:
  // Takes addresses for `bytes`; memory only as it is written to. kResourceExhausted if the system
  // has none.
  static Expected<Arena> reserve(size_t bytes);

  // Part of what was reserved, while there is enough; then memory of its own.
  Expected<Buffer> allocate(size_t bytes);

 private:
  std::shared_ptr<void> memory_;
  size_t size_ = 0;
  size_t used_ = 0;
};

}  // namespace aerie

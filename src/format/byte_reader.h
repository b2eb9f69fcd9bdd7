// A cursor over little-endian bytes from a file that checks before it reads.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "base/status.h"

namespace aerie {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }

  // kInvalidData, saying how many bytes are missing, unless `count` items of at least `bytes_each`
  // bytes (>= 1) can still follow.
  Status require(uint64_t count, uint64_t bytes_each = 1) const {
    return count <= remaining() / bytes_each ? Status() : missing(count, bytes_each);
  }

  // The next number.
  template <typename T>
  Status read(T& value) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    static_assert(std::endian::native == std::endian::little);
    AERIE_RETURN_IF_ERROR(require(sizeof(T)));
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return Status();
  }

  // The next `length` bytes, where they are.
  Status read_text(uint64_t length, std::string_view& text) {
    AERIE_RETURN_IF_ERROR(require(length));
    text = {reinterpret_cast<const char*>(bytes_.data() + offset_), static_cast<size_t>(length)};
    offset_ += static_cast<size_t>(length);
    return Status();
  }

  Status skip(uint64_t length) {
    AERIE_RETURN_IF_ERROR(require(length));
    offset_ += static_cast<size_t>(length);
    return Status();
  }

 private:
  Status missing(uint64_t count, uint64_t bytes_each) const;

  std::span<const std::byte> bytes_;
  size_t offset_ = 0;
};

}  // namespace aerie

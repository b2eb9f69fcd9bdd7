// Values and runs of them as bytes, for a reader on a machine of the same kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace aerie {

// Appends to a vector.
class MessageWriter {
 public:
  explicit MessageWriter(std::vector<std::byte>& out) : out_(out) {}

  template <typename T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(&value, sizeof(T));
  }
  // Their number and they.
  template <typename T>
  void values(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    value(static_cast<uint64_t>(values.size()));
    append(values.data(), values.size_bytes());
  }
  void text(std::string_view text) { values(std::span<const char>(text)); }

 private:
  void append(const void* from, size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(from);
    out_.insert(out_.end(), begin, begin + bytes);
  }

  std::vector<std::byte>& out_;
};

// In the order in which it was written. What is not there reads as 0 or as empty, and good() is
// false from then on.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : left_(bytes) {}

  bool good() const { return good_; }
  bool at_end() const { return left_.empty(); }

  template <typename T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value = {};
    take(&value, sizeof(T), 1);
    return value;
  }
  template <typename T>
  void values(std::vector<T>& out) {
    const auto count = value<uint64_t>();
    out.resize(good_ && count <= left_.size() / sizeof(T) ? static_cast<size_t>(count) : 0);
    take(out.data(), sizeof(T), count);
  }
  std::string text() {
    std::vector<char> letters;
    values(letters);
    return {letters.begin(), letters.end()};
  }

 private:
  void take(void* to, size_t size, uint64_t count) {
    good_ = good_ && count <= left_.size() / size;
    if (!good_ || count == 0) return;
    std::memcpy(to, left_.data(), size * count);
    left_ = left_.subspan(size * count);
  }

  std::span<const std::byte> left_;
  bool good_ = true;
};

}  // namespace aerie

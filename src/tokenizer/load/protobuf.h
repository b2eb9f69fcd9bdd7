// Reading protocol buffers' wire format (https://protobuf.dev/programming-guides/encoding/) field
// by field, checked before use; nothing is copied.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace aerie {

// The fields of one message, in the file's order. The bytes must outlive it.
class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view bytes) : rest_(bytes) {}

  struct Field {
    uint32_t number = 0;
    enum class Wire : uint8_t { kVarint, kFixed64, kBytes, kFixed32 } wire = Wire::kVarint;
    uint64_t value = 0;      // of a number, as it is written
    std::string_view bytes;  // of a string or a message

    // As the kinds that messages have; false or 0 if the wire type is another.
    float as_float() const;
    bool as_bool() const { return wire == Wire::kVarint && value != 0; }
    int64_t as_int() const { return wire == Wire::kVarint ? static_cast<int64_t>(value) : 0; }
  };

  // Reads the next field. False at the end, and at bytes that are no field: see status().
  bool next(Field& field);
  // kInvalidData for what is cut off or no field.
  const Status& status() const { return status_; }

 private:
  bool varint(uint64_t& value);
  bool fixed(size_t size, uint64_t& value);
  bool fail(const char* what);

  std::string_view rest_;
  Status status_;
};

}  // namespace aerie

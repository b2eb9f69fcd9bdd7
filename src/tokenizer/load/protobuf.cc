#include "tokenizer/load/protobuf.h"

#include <bit>
#include <cstring>
#include <string>

#include "base/errors.h"

namespace aerie {

float ProtobufReader::Field::as_float() const {
  return wire == Wire::kFixed32 ? std::bit_cast<float>(static_cast<uint32_t>(value)) : 0.0f;
}

bool ProtobufReader::fail(const char* what) {
  status_ = invalid_data("{}{}", std::string("the protocol buffer "), what);
  rest_ = {};
  return false;
}

bool ProtobufReader::varint(uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return fail("is cut off");
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return fail("has a number of more than ten bytes");
}

bool ProtobufReader::fixed(size_t size, uint64_t& value) {
  if (rest_.size() < size) return fail("is cut off");
  value = 0;
  std::memcpy(&value, rest_.data(), size);
  rest_.remove_prefix(size);
  return true;
}

bool ProtobufReader::next(Field& field) {
  if (rest_.empty()) return false;
  uint64_t key = 0;
  if (!varint(key)) return false;
  field = {};
  field.number = static_cast<uint32_t>(key >> 3);
  if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) return fail("has a field with an invalid number");
  switch (key & 7) {
    case 0:
      field.wire = Field::Wire::kVarint;
      return varint(field.value);
    case 1:
      field.wire = Field::Wire::kFixed64;
      return fixed(8, field.value);
    case 5:
      field.wire = Field::Wire::kFixed32;
      return fixed(4, field.value);
    case 2:
      break;
    default:
      return fail("has a field of an unknown wire type");
  }
  field.wire = Field::Wire::kBytes;
  uint64_t length = 0;
  if (!varint(length)) return false;
  if (length > rest_.size()) return fail("is cut off");
  field.bytes = rest_.substr(0, static_cast<size_t>(length));
  rest_.remove_prefix(static_cast<size_t>(length));
  return true;
}

}  // namespace aerie

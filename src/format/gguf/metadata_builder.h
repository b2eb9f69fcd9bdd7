// Metadata that is made rather than read from a GGUF file: of a Hugging Face folder, of a
// conversion.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf/gguf_types.h"
#include "format/model_file.h"

namespace aerie {

// Owns the strings of what is added, so it must live as long as the metadata that release() gives:
// a ModelFile keeps the builder as a member. Moves (strings stay where they are), does not copy.
// Keys are in the order in which they were added; adding one again puts the new value in the old
// one's place.
class MetadataBuilder {
 public:
  MetadataBuilder() = default;
  MetadataBuilder(MetadataBuilder&&) noexcept = default;
  MetadataBuilder& operator=(MetadataBuilder&&) noexcept = default;

  void add_u32(std::string key, uint32_t value);
  void add_i64(std::string key, int64_t value);
  void add_f32(std::string key, float value);
  void add_bool(std::string key, bool value);
  void add_string(std::string key, std::string value);

  void add_u8s(std::string key, const std::vector<uint8_t>& values);
  void add_i32s(std::string key, const std::vector<int32_t>& values);
  void add_f32s(std::string key, const std::vector<float>& values);
  void add_bools(std::string key, std::vector<bool> values);
  void add_strings(std::string key, std::vector<std::string> values);

  // A value of another file, whose strings must outlive the metadata.
  void add(std::string key, MetadataValue value);

  bool has(std::string_view key) const;

  // What was added; nothing is left to release again.
  Metadata release();

 private:
  void add_scalar(std::string key, GgufValueType type, MetadataScalar value);
  void add_array(std::string key, GgufValueType type, MetadataArray values);
  MetadataValue* find(std::string_view key);

  Metadata metadata_;
  std::deque<std::string> strings_;
  std::deque<std::vector<std::string>> lists_;
};

}  // namespace aerie

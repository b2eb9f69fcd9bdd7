#include "format/gguf/metadata_builder.h"

#include <algorithm>
#include <utility>

namespace aerie {

MetadataValue* MetadataBuilder::find(std::string_view key) {
  const auto it =
      std::ranges::find_if(metadata_, [&](const auto& entry) { return entry.first == key; });
  return it == metadata_.end() ? nullptr : &it->second;
}

bool MetadataBuilder::has(std::string_view key) const {
  return std::ranges::any_of(metadata_, [&](const auto& entry) { return entry.first == key; });
}

void MetadataBuilder::add(std::string key, MetadataValue value) {
  if (MetadataValue* old = find(key)) {
    *old = std::move(value);
    return;
  }
  metadata_.emplace_back(strings_.emplace_back(std::move(key)), std::move(value));
}

void MetadataBuilder::add_scalar(std::string key, GgufValueType type, MetadataScalar value) {
  add(std::move(key), {gguf_value_type_info(type).name, value});
}

void MetadataBuilder::add_array(std::string key, GgufValueType type, MetadataArray values) {
  add(std::move(key), {gguf_value_type_info(type).array_name, std::move(values)});
}

void MetadataBuilder::add_u32(std::string key, uint32_t value) {
  add_scalar(std::move(key), GgufValueType::kU32, uint64_t{value});
}
void MetadataBuilder::add_i64(std::string key, int64_t value) {
  add_scalar(std::move(key), GgufValueType::kI64, value);
}
void MetadataBuilder::add_f32(std::string key, float value) {
  add_scalar(std::move(key), GgufValueType::kF32, double{value});
}
void MetadataBuilder::add_bool(std::string key, bool value) {
  add_scalar(std::move(key), GgufValueType::kBool, value);
}
void MetadataBuilder::add_string(std::string key, std::string value) {
  const std::string& kept = strings_.emplace_back(std::move(value));
  add_scalar(std::move(key), GgufValueType::kString, std::string_view(kept));
}

void MetadataBuilder::add_u8s(std::string key, const std::vector<uint8_t>& values) {
  add_array(std::move(key), GgufValueType::kU8,
            std::vector<uint64_t>(values.begin(), values.end()));
}
void MetadataBuilder::add_i32s(std::string key, const std::vector<int32_t>& values) {
  add_array(std::move(key), GgufValueType::kI32,
            std::vector<int64_t>(values.begin(), values.end()));
}
void MetadataBuilder::add_f32s(std::string key, const std::vector<float>& values) {
  add_array(std::move(key), GgufValueType::kF32, std::vector<double>(values.begin(), values.end()));
}
void MetadataBuilder::add_bools(std::string key, std::vector<bool> values) {
  add_array(std::move(key), GgufValueType::kBool, std::move(values));
}
void MetadataBuilder::add_strings(std::string key, std::vector<std::string> values) {
  const std::vector<std::string>& kept = lists_.emplace_back(std::move(values));
  add_array(std::move(key), GgufValueType::kString,
            std::vector<std::string_view>(kept.begin(), kept.end()));
}

Metadata MetadataBuilder::release() {
  return std::exchange(metadata_, {});
}

}  // namespace aerie

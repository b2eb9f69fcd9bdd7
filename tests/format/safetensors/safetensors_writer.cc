#include "tests/format/safetensors/safetensors_writer.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>

namespace aerie::test {

std::vector<std::byte> safetensors_bytes(std::string_view header, std::span<const std::byte> data) {
  const uint64_t length = header.size();
  std::vector<std::byte> out(sizeof(length) + header.size() + data.size());
  std::memcpy(out.data(), &length, sizeof(length));
  if (!header.empty()) std::memcpy(out.data() + sizeof(length), header.data(), header.size());
  if (!data.empty()) {
    std::memcpy(out.data() + sizeof(length) + header.size(), data.data(), data.size());
  }
  return out;
}

Status write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file ? Status() : Status(StatusCode::kInternal, path + ": cannot write");
}

SafetensorsWriter& SafetensorsWriter::add(std::string_view name, std::string_view dtype,
                                          const std::vector<int64_t>& shape,
                                          std::span<const std::byte> data) {
  if (!entries_.empty()) entries_ += ",";
  entries_ += fmt::format(R"("{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name,
                          dtype, fmt::join(shape, ","), data_.size(), data_.size() + data.size());
  data_.insert(data_.end(), data.begin(), data.end());
  return *this;
}

SafetensorsWriter& SafetensorsWriter::add(std::string_view name, const std::vector<int64_t>& shape,
                                          const std::vector<float>& values) {
  return add(name, "F32", shape, std::as_bytes(std::span(values)));
}

SafetensorsWriter& SafetensorsWriter::add_metadata(std::string_view key, std::string_view value) {
  metadata_.emplace_back(key, value);
  return *this;
}

std::string SafetensorsWriter::header() const {
  std::string metadata;
  for (const auto& [key, value] : metadata_) {
    metadata += fmt::format(R"({}"{}":"{}")", metadata.empty() ? "" : ",", key, value);
  }
  if (!metadata.empty()) {
    metadata = fmt::format(R"("__metadata__":{{{}}}{})", metadata, entries_.empty() ? "" : ",");
  }
  std::string header = "{" + metadata + entries_ + "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

std::vector<std::byte> SafetensorsWriter::bytes() const {
  return safetensors_bytes(header(), data_);
}

Status SafetensorsWriter::write(const std::string& path) const {
  return write_bytes(path, bytes());
}

}  // namespace aerie::test

// Safetensors files: https://github.com/huggingface/safetensors, section "Format". Eight bytes of
// header length, a JSON header, and the tensors' bytes, little-endian and outermost size first.
//
// A file is hostile until it is checked: sizes, offsets, types and names are validated before use.
// The tensors must cover the data without holes and overlaps, as the format has it, so that nothing
// hides between them. Memory is bounded by that of the header's JSON (format/json.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/json.h"
#include "format/mapped_file.h"
#include "format/name_index.h"
#include "tensor/dtype.h"

namespace aerie {

// Every type that the format knows, whether or not Aerie computes with it.
enum class SafetensorsType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

struct SafetensorsTypeInfo {
  std::string_view name;  // "F8_E4M3", as files spell it
  int bits;               // of an element
  std::optional<DType> dtype;
};
const SafetensorsTypeInfo& safetensors_type_info(SafetensorsType type);

struct SafetensorsTensor {
  std::string name;  // valid UTF-8
  SafetensorsType type = SafetensorsType::kF32;
  std::vector<int64_t> shape;       // outermost first; empty for a single value; sizes may be 0
  std::span<const std::byte> data;  // of the file, with any alignment; empty if a size is 0

  int64_t elements() const;
};

// The values of a tensor of integers or booleans of at most 64 bits with a sign, in the order in
// which they lie. kUnsupported, naming it, for other types.
Expected<std::vector<int64_t>> read_integers(const SafetensorsTensor& tensor);

// Immutable once it is open, so safe to share between threads. Moves, does not copy; tensors stay
// where they are when it moves. What others may do to the file meanwhile, check() tells.
class SafetensorsFile {
 public:
  // kNotFound if there is no such file, kInvalidData if it is broken, kUnsupported if a tensor's
  // type is not known.
  static Expected<SafetensorsFile> open(const std::string& path);
  // The same from bytes in memory, which must outlive the object; `name` is for messages.
  static Expected<SafetensorsFile> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  int64_t file_bytes() const { return static_cast<int64_t>(bytes_.size()); }
  std::span<const std::byte> bytes() const { return bytes_; }
  int64_t modified() const { return file_.modified(); }  // nanoseconds since 1970; 0: parse()d

  // In the header's order.
  std::span<const SafetensorsTensor> tensors() const { return tensors_; }
  const SafetensorsTensor* find(std::string_view name) const;  // nullptr if absent
  // "__metadata__": what the writer had to say; {"format", "pt"} in most.
  std::span<const std::pair<std::string, std::string>> metadata() const { return metadata_; }

  // As MappedFile::check().
  Status check() const { return file_.check(); }
  // Drops the pages that lie wholly inside `data` from memory until they are touched again. No
  // effect on bytes that are not of the file.
  void release(std::span<const std::byte> data) const { file_.release(data); }

 private:
  explicit SafetensorsFile(std::string name) : name_(std::move(name)) {}
  Status read(std::span<const std::byte> bytes);
  Status read_header(const Json& header, std::span<const std::byte> data);

  std::string name_;
  MappedFile file_;  // empty for parse()d bytes
  std::span<const std::byte> bytes_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  NameIndex index_;
};

}  // namespace aerie

// GGUF v2 and v3, little-endian: metadata and tensors of a memory-mapped file.
//
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. A file is hostile until it is
// checked: open() validates every count, length, offset, size, alignment, type and name before use,
// and allocates no more than a small multiple of the header's own bytes. Names (of keys and
// tensors) are valid UTF-8 without NUL and unique; tensors lie inside the file and do not overlap.
// What strings and numbers mean is for the reader of the key to check: a string may hold any bytes,
// a float may be infinite or NaN. The file must not shrink while it is open (the system kills
// readers of a mapping whose file is gone).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "tensor/tensor.h"

namespace aerie {

// A metadata array of numbers or booleans, in the widest type of its kind; or of strings, which
// point into the mapped file. Arrays of arrays are checked and skipped (kept as std::monostate).
using GgufArray = std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>,
                               std::vector<bool>, std::vector<std::string_view>>;
using GgufScalar = std::variant<uint64_t, int64_t, double, bool, std::string_view>;

struct GgufValue {
  std::string_view type_name;  // as the file declares it: "u32", "string", "array of f32"
  std::variant<std::monostate, GgufScalar, GgufArray> value;
};

struct GgufTensor {
  std::string_view name;
  std::string_view type_name;  // "q4_1", "iq2_xs"; "unknown" if `type_id` is not one of ggml's
  uint32_t type_id = 0;        // ggml's number of the type
  Shape shape = {1, 1, 1, 1};  // every size is at least 1
  int64_t offset = 0;  // in the file; a multiple of the file's alignment, which is at least 8
  int64_t bytes = 0;   // 0 if the type is unknown
  TensorView view;     // not valid() if the type is not a DType
};

// Immutable after open(), so safe to share between threads. All views and string_views point into
// the mapping and live as long as the object.
class GgufFile {
 public:
  static Expected<std::unique_ptr<GgufFile>> open(const std::string& path);
  // The same from bytes in memory, which must outlive the object; `name` is for messages. Views are
  // aligned as the bytes are.
  static Expected<std::unique_ptr<GgufFile>> parse(std::span<const std::byte> bytes,
                                                   std::string name);
  ~GgufFile();
  GgufFile(const GgufFile&) = delete;
  GgufFile& operator=(const GgufFile&) = delete;

  const std::string& name() const;
  uint32_t version() const;
  int64_t file_bytes() const;

  // In the file's order.
  std::span<const std::pair<std::string_view, GgufValue>> metadata() const;
  std::span<const GgufTensor> tensors() const;

  // nullptr if absent.
  const GgufValue* find(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view name) const;

  // A key's value as the wanted kind. kNotFound if it is absent, kInvalidData if it is of another
  // kind or does not fit; the message names file and key. What they return points into this object.
  Expected<int64_t> integer(std::string_view key) const;
  Expected<double> number(std::string_view key) const;  // integers convert
  Expected<bool> boolean(std::string_view key) const;
  Expected<std::string_view> string(std::string_view key) const;
  Expected<std::span<const std::string_view>> strings(std::string_view key) const;
  // An array of any integer or float type.
  Expected<std::vector<double>> numbers(std::string_view key) const;

  // kNotFound (naming the tensor) if it is absent, kUnsupported (naming its type as well) if the
  // type is not a DType.
  Expected<TensorView> tensor(std::string_view name) const;

  // Tells the system that the bytes of `view` will not be needed soon: the pages that lie wholly
  // inside it leave this process's memory and come back from the file when touched. No effect on
  // parse()d bytes or on a view of other memory.
  void release(const TensorView& view) const;

 private:
  GgufFile();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aerie

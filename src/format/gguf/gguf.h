// GGUF v2 and v3, little-endian: metadata and tensors of a memory-mapped file, or of the files that
// a model is split over.
//
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. A file is hostile until it is
// checked: open() validates every count, length, offset, size, alignment, type and name before use,
// and allocates no more than a small multiple of the header's own bytes. Names (of keys and
// tensors) are valid UTF-8 without NUL and unique; tensors lie inside the file and do not overlap.
// What strings and numbers mean is for the reader of the key to check: a string may hold any bytes,
// a float may be infinite or NaN. The file must not shrink while it is open (the system kills
// readers of a mapping whose file is gone).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "format/model_file.h"

namespace aerie {

class GgufFile final : public ModelFile {
 public:
  // Of a model in parts (format/gguf/gguf_split.h), any part's path opens all: the metadata is the
  // first's without the keys about the parts, the tensors are everybody's, in the parts' order.
  // kNotFound if there is no such file or a part is missing.
  static Expected<std::unique_ptr<GgufFile>> open(const std::string& path);
  // A whole model from bytes in memory, which must outlive the object; `name` is for messages.
  // Views are aligned as the bytes are. kUnsupported for a part of a model.
  static Expected<std::unique_ptr<GgufFile>> parse(std::span<const std::byte> bytes,
                                                   std::string name);
  ~GgufFile() override;

  std::string format() const override;
  int64_t file_bytes() const override;
  uint32_t version() const;  // of the first part

  // read() without the chance that memory is needed: values are views of the mapping.
  Expected<TensorView> tensor(std::string_view name) const;
  Status check_intact() const override;
  void release(const TensorView& view) const override;
  std::vector<SourceFile> sources() const override;

 private:
  explicit GgufFile(std::string name);
  Status set_parts();
  Expected<TensorData> read_tensor(const TensorInfo& tensor) const override;
  TensorView view_of(const TensorInfo& tensor) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aerie

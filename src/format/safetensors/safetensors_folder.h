// The tensors of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json names; or those of a folder or file of another name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"
#include "format/name_index.h"
#include "format/safetensors/safetensors.h"

namespace aerie {

// Immutable once it is open, so safe to share between threads. Moves, does not copy; tensors stay
// where they are when it moves.
class SafetensorsFolder {
 public:
  // kNotFound if there is no such folder or it holds no safetensors files (the message says what to
  // do about pickle files), or if a shard is missing; kInvalidData if a file is broken or index and
  // shards do not say the same: every tensor lies in the shard where the index places it, and
  // nowhere else.
  static Expected<SafetensorsFolder> open(const std::string& path);

  // The same of a file, or of a folder whose one file or one index may have any name ending in
  // .safetensors or .safetensors.index.json. kInvalidArgument, naming them, if there are several;
  // kUnsupported if there are only pickle files.
  static Expected<SafetensorsFolder> open_any(const std::string& path);

  const std::string& name() const { return name_; }  // the path; for messages
  int64_t file_bytes() const;                        // of all shards

  std::span<const SafetensorsFile> shards() const { return shards_; }
  // Of all shards, in the shards' order.
  std::span<const SafetensorsTensor* const> tensors() const { return tensors_; }
  const SafetensorsTensor* find(std::string_view name) const;  // nullptr if absent

  // The shards, for ModelFile::sources().
  std::vector<SourceFile> sources() const;

  // As SafetensorsFile::check(), of all shards.
  Status check() const;
  // As SafetensorsFile::release().
  void release(std::span<const std::byte> data) const;

 private:
  explicit SafetensorsFolder(std::string name) : name_(std::move(name)) {}
  Status read_index(const std::string& path);
  void list_tensors();

  std::string name_;
  std::vector<SafetensorsFile> shards_;
  std::vector<const SafetensorsTensor*> tensors_;
  NameIndex index_;
};

}  // namespace aerie

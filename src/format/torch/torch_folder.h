// The tensors of PyTorch's files in a folder, or of one file: to be looked at, and to be written as
// safetensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"
#include "format/torch/torch_file.h"

namespace aerie {

// Whether a path is a file of torch.save() by its name (.bin, .pt, .pth), or a folder that holds
// such and neither safetensors nor GGUF files.
bool is_torch_path(const std::string& path);

// Immutable once it is open, so safe to share between threads. Moves, does not copy.
class TorchFolder {
 public:
  // A file; or of a folder pytorch_model.bin, the shards that pytorch_model.bin.index.json names,
  // or the one file that is there (but for a trainer's own: optimizer.pt, training_args.bin and
  // the like). kInvalidArgument, naming them, if there are several, kNotFound if there is none,
  // kInvalidData if a tensor is in two shards; otherwise as TorchFile::open().
  static Expected<TorchFolder> open(const std::string& path);

  const std::string& name() const { return name_; }  // the path; for messages
  int64_t file_bytes() const;                        // of all files

  std::span<const TorchFile> files() const { return files_; }
  // Of all files, in the files' order.
  std::span<const TorchTensor* const> tensors() const { return tensors_; }

  // As TorchFile::check(), of all files.
  Status check() const;
  // As TorchFile::release().
  void release(std::span<const std::byte> data) const;

 private:
  explicit TorchFolder(std::string name) : name_(std::move(name)) {}

  std::string name_;
  std::vector<TorchFile> files_;
  std::vector<const TorchTensor*> tensors_;
};

// Writes the tensors to `output`: a file ending in .safetensors, or a folder, made if need be,
// where model.safetensors is written, and config.json copied from beside the input if it is there.
// Numbers and strings that are no tensors go into the metadata of the file. What cannot be written
// whole is not written at all. Returns the bytes of the safetensors file. kInvalidArgument if
// `output` is neither; otherwise as TorchFolder::open() and write_safetensors().
Expected<int64_t> convert_torch(const std::string& input, const std::string& output);

// The tensors as those of a model, by their names and with GGUF's order of sizes. Of one of more
// than four dimensions the outer ones are one.
Expected<std::unique_ptr<ModelFile>> open_torch_model(const std::string& path);

}  // namespace aerie

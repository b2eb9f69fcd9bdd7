// Files of torch.save(): a zip archive of a pickle and the bytes that it speaks of, or, from before
// PyTorch 1.6, several pickles with the bytes behind them. Nothing in them is run
// (format/torch/pickle.h).
//
// A file is hostile until it is checked: the archive, the pickle, and that each tensor's elements
// lie in its storage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "format/mapped_file.h"
#include "format/torch/torch_tensor.h"

namespace aerie {

// What torch.save() was given, taken apart: a dict's values are called after their keys, those of
// dicts in dicts "outer.inner", those of lists and tuples after their place; a tensor that is all
// there is, "data". A list of numbers is a tensor too, of I64, or of F64 if one has a fraction.
//
// Immutable once it is open, so safe to share between threads. Moves, does not copy; tensors stay
// where they are when it moves. What others may do to the file meanwhile, check() tells.
class TorchFile {
 public:
  // kNotFound if there is no such file. kInvalidData if it is broken. kUnsupported, naming it, for
  // what would run code, for a type of tensor that is not known, and for a file that is not one of
  // tensors, dicts, lists and single values.
  static Expected<TorchFile> open(const std::string& path);
  // The same from bytes in memory, which must outlive the object; `name` is for messages.
  static Expected<TorchFile> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  int64_t file_bytes() const { return static_cast<int64_t>(bytes_.size()); }

  // In the file's order.
  std::span<const TorchTensor> tensors() const { return tensors_; }
  // Single numbers, strings and booleans by the same names, as text.
  std::span<const std::pair<std::string, std::string>> values() const { return values_; }

  // As MappedFile::check().
  Status check() const { return file_.check(); }
  // Drops the pages that lie wholly inside `data` from memory until they are touched again.
  void release(std::span<const std::byte> data) const { file_.release(data); }

 private:
  friend class TorchReader;
  explicit TorchFile(std::string name) : name_(std::move(name)) {}

  std::string name_;
  MappedFile file_;  // empty for parse()d bytes
  std::span<const std::byte> bytes_;
  std::vector<TorchTensor> tensors_;
  std::vector<std::pair<std::string, std::string>> values_;
  std::vector<std::unique_ptr<std::byte[]>> made_;  // lists of numbers
};

}  // namespace aerie

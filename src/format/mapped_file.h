// A regular file's bytes, mapped read-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "format/mapping_faults.h"

namespace aerie {

// Moves, does not copy; the bytes stay where they are when it moves. Safe to share between threads.
//
// Others may cut the file short or write to it at any time, and its disk may fail: no read of the
// bytes ends the process (format/mapping_faults.h), but whoever has read them asks check() whether
// they were the file's before something is made of them.
class MappedFile {
 public:
  // kNotFound if there is no such file, kInvalidArgument if it cannot be read or is not a regular
  // file (a directory, a pipe). Messages start with the path.
  static Expected<MappedFile> open(const std::string& path);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Page-aligned; empty for an empty file.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // When it was opened: nanoseconds since 1970.
  int64_t modified() const { return modified_; }

  // kInvalidData, naming the path, if bytes could not be read, or if others have written to the
  // file since it was opened. One that was put in its place leaves the opened one as it is.
  Status check() const;

  // Drops the pages that lie wholly inside `part` from this process's memory; they come back from
  // the file when touched. Ignores a part that is not of bytes().
  void release(std::span<const std::byte> part) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int64_t modified_ = 0;
  std::string path_;
  uint64_t device_ = 0, inode_ = 0;
  MappingFaults faults_;
};

}  // namespace aerie

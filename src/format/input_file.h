// A regular file that is read by position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

struct stat;

namespace aerie {

// Nanoseconds since 1970.
int64_t modified_time(const struct stat& info);

// Moves, does not copy.
class InputFile {
 public:
  // kNotFound if there is no such file, kInvalidArgument if it cannot be read or is not a regular
  // file (a directory, a pipe). Messages start with the path.
  static Expected<InputFile> open(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;

  // As they were when it was opened.
  int64_t size() const { return size_; }
  int64_t modified() const { return modified_; }  // nanoseconds since 1970
  // Which file it is, whatever its name.
  uint64_t device() const { return device_; }
  uint64_t inode() const { return inode_; }

  int descriptor() const { return fd_; }

  // Fills `out` from `offset` on; kInvalidData if the file ends before. Safe to call from several
  // threads.
  Status read(int64_t offset, std::span<std::byte> out) const;

 private:
  InputFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
  int64_t size_ = 0;
  int64_t modified_ = 0;
  uint64_t device_ = 0, inode_ = 0;
};

// All bytes of a file; errors as those of InputFile, and kInvalidData for more than `most` bytes.
Expected<std::string> read_file(const std::string& path, int64_t most = int64_t{1} << 30);

}  // namespace aerie

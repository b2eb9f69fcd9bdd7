// A regular file that is read by position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace aerie {

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
};

}  // namespace aerie

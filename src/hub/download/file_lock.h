// A lock between processes, as Python's filelock takes it: flock() of a file that stays there.
#pragma once

#include <string>

#include "base/status.h"

namespace aerie {

// Held until it is destroyed, or the process ends. Moves, does not copy.
class FileLock {
 public:
  // Waits for who holds it, and makes the file and its folders. kCancelled after Ctrl-C where that
  // is caught (base/interrupt.h). `waiting` is said once if it has to wait.
  static Expected<FileLock> take(const std::string& path, const std::string& waiting);
  ~FileLock();
  FileLock(FileLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileLock& operator=(FileLock&&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace aerie

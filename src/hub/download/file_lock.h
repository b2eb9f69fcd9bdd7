// A lock between processes, as Python's filelock takes it: flock() of a file that stays there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace aerie {

// Held until it is destroyed, or the process ends. Moves, does not copy.
class FileLock {
 public:
  // Waits for who holds it, and makes the file and its folders. kCancelled after Ctrl-C where that
  // is caught (base/interrupt.h). `waiting` is said once if it has to wait.
  static Expected<FileLock> take(const std::string& path, const std::string& waiting) {
    return wait_for(path, Kind::kAlone, waiting);
  }
  // The same for one that others may share, while nobody has it alone.
  static Expected<FileLock> share(const std::string& path, const std::string& waiting) {
    return wait_for(path, Kind::kShared, waiting);
  }
  // Does not wait: none if somebody holds it.
  static Expected<std::optional<FileLock>> try_take(const std::string& path) {
    return open_locked(path, Kind::kAlone);
  }

  ~FileLock();
  FileLock(FileLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileLock& operator=(FileLock&&) = delete;

 private:
  enum class Kind : uint8_t { kShared, kAlone };

  explicit FileLock(int fd) : fd_(fd) {}
  static Expected<FileLock> wait_for(const std::string& path, Kind kind,
                                     const std::string& waiting);
  static Expected<std::optional<FileLock>> open_locked(const std::string& path, Kind kind);

  int fd_;
};

}  // namespace aerie

#include "hub/download/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "hub/hub_settings.h"

namespace aerie {

namespace {

// Whether the file still has this name: who removed a model removed its locks, too.
bool is_named(int fd, const std::string& path) {
  struct stat own = {}, named = {};
  return fstat(fd, &own) == 0 && stat(path.c_str(), &named) == 0 && own.st_dev == named.st_dev &&
         own.st_ino == named.st_ino;
}

}  // namespace

Expected<std::optional<FileLock>> FileLock::open_locked(const std::string& path, Kind kind) {
  while (true) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    const int fd = retried([&] { return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644); });
    if (fd < 0) return system_error(path, "cannot make this lock", errno);
    FileLock lock(fd);
    const int operation = (kind == Kind::kAlone ? LOCK_EX : LOCK_SH) | LOCK_NB;
    if (retried([&] { return flock(fd, operation); }) != 0) {
      if (errno == EWOULDBLOCK) return std::optional<FileLock>();
      return system_error(path, "cannot lock it", errno);
    }
    if (is_named(fd, path)) return std::optional(std::move(lock));
  }
}

Expected<FileLock> FileLock::wait_for(const std::string& path, Kind kind,
                                      const std::string& waiting) {
  for (bool said = false;; said = true) {
    AERIE_ASSIGN_OR_RETURN(std::optional<FileLock> lock, open_locked(path, kind));
    if (lock) return *std::move(lock);
    if (interrupted) return Status(StatusCode::kCancelled, path + ": no longer waited for");
    if (!said) tell_hub_listener(waiting);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace aerie

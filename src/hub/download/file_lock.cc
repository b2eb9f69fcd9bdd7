#include "hub/download/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/errors.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "hub/hub_settings.h"

namespace aerie {

Expected<FileLock> FileLock::take(const std::string& path, const std::string& waiting) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const int fd = retried([&] { return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644); });
  if (fd < 0) return system_error(path, "cannot make this lock", errno);
  FileLock lock(fd);
  bool said = false;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_error(path, "cannot lock it", errno);
    if (interrupted) return Status(StatusCode::kCancelled, path + ": no longer waited for");
    if (!said) tell_hub_listener(waiting);
    said = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return lock;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace aerie

#include "engine/recording/record_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/errors.h"
#include "base/files.h"
#include "format/output_file.h"

namespace aerie {
namespace {

// Between processes that write to the same file.
class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd), held_(retried([&] { return flock(fd, LOCK_EX); }) == 0) {}
  ~FileLock() {
    if (held_) flock(fd_, LOCK_UN);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  bool held() const { return held_; }

 private:
  int fd_;
  bool held_;
};

}  // namespace

Expected<RecordFile> RecordFile::open(const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(const OutputPlace place, find_output(path));
  if (place.descriptor >= 0) return RecordFile(path, place.descriptor, false);
  const int fd = ::open(place.path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) {
    return system_error(path,
                        errno == ENOENT ? "no file can be made there; does its folder exist?"
                                        : "the file cannot be written",
                        errno);
  }
  return RecordFile(path, fd, true);
}

Expected<RecordFile> RecordFile::create(const std::string& path) {
  const int fd =
      ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return system_error(path, "the file cannot be made", errno);
  return RecordFile(path, fd, true);
}

RecordFile::RecordFile(RecordFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      is_regular_(other.is_regular_) {}

RecordFile::~RecordFile() {
  if (fd_ >= 0) close(fd_);
}

Status RecordFile::append(const Record& record) {
  return append(to_line(record) + "\n");
}

bool RecordFile::is_removed() const {
  struct stat info = {};
  return fstat(fd_, &info) != 0 || (is_regular_ && info.st_nlink == 0);
}

Status RecordFile::append(std::string line) {
  if (!is_regular_) {
    const int error = write_all(fd_, line);
    return error == 0 ? Status() : system_error(path_, "the record cannot be written", error);
  }
  const FileLock lock(fd_);
  if (!lock.held()) return system_error(path_, "the file cannot be locked", errno);
  struct stat info = {};
  if (fstat(fd_, &info) != 0) return system_error(path_, "the file cannot be read", errno);
  if (info.st_size > 0) {
    char last = 0;
    if (retried([&] { return pread(fd_, &last, 1, info.st_size - 1); }) != 1) {
      return system_error(path_, "the file cannot be read", errno);
    }
    if (last != '\n') line.insert(line.begin(), '\n');
  }
  if (const int error = write_all(fd_, line); error != 0) {
    // Half a line would be taken for a broken record.
    const int cut = ftruncate(fd_, info.st_size);
    return system_error(path_, cut == 0 ? "the record was not added" : "half a record was added",
                        error);
  }
  return {};
}

}  // namespace aerie

#include "format/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/errors.h"
#include "base/files.h"

namespace aerie {

Expected<InputFile> InputFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe would wait for its writer.
  InputFile file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd_ < 0 && (errno == ENOENT || errno == ENOTDIR)) {
    return not_found("{}: there is no such file", path);
  }
  if (file.fd_ < 0) return system_error(path, "cannot open", errno);
  struct stat info = {};
  if (fstat(file.fd_, &info) != 0) return system_error(path, "cannot examine", errno);
  if (S_ISDIR(info.st_mode)) return invalid_argument("{}: is a directory; name a file in it", path);
  if (!S_ISREG(info.st_mode)) return invalid_argument("{}: is not a regular file", path);
  file.size_ = info.st_size;
  file.modified_ = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  return file;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      modified_(other.modified_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(modified_, other.modified_);
  return *this;
}

Status InputFile::read(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = retried([&] { return pread(fd_, out.data(), out.size(), offset); });
    if (count < 0) return system_error(path_, "cannot read", errno);
    if (count == 0) {
      return invalid_data("{}: ends before byte {}", path_, offset + 1);
    }
    offset += count;
    out = out.subspan(static_cast<size_t>(count));
  }
  return {};
}

}  // namespace aerie

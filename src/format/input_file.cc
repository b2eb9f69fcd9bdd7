#include "format/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <utility>

#include "base/errors.h"
#include "base/files.h"

namespace aerie {

int64_t modified_time(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

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
  file.modified_ = modified_time(info);
  file.device_ = info.st_dev;
  file.inode_ = info.st_ino;
  return file;
}

InputFile::~InputFile() {
  if (fd_ >= 0) close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      modified_(other.modified_),
      device_(other.device_),
      inode_(other.inode_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(modified_, other.modified_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
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

Expected<std::string> read_file(const std::string& path, int64_t most) {
  AERIE_ASSIGN_OR_RETURN(const InputFile file, InputFile::open(path));
  if (file.size() > most) {
    return invalid_data("{}: has {} bytes; at most {} are read", path, file.size(), most);
  }
  std::string text;
  try {
    text.resize(static_cast<size_t>(file.size()));
  } catch (const std::exception&) {
    return resource_exhausted("{}: there is no memory for its {} bytes", path, file.size());
  }
  AERIE_RETURN_IF_ERROR(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace aerie

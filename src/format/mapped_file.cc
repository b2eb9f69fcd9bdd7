#include "format/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <system_error>
#include <utility>

namespace aerie {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Status system_error(const std::string& path, const std::string& what, int error) {
  if (error == ENOENT || error == ENOTDIR) {
    return Status(StatusCode::kNotFound, path + ": there is no such file");
  }
  const StatusCode code =
      error == ENOMEM ? StatusCode::kResourceExhausted : StatusCode::kInvalidArgument;
  return Status(code, path + ": " + what + ": " + std::generic_category().message(error));
}

}  // namespace

Expected<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe would wait for its writer.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return system_error(path, "cannot open", errno);
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return system_error(path, "cannot examine", errno);
  if (S_ISDIR(info.st_mode)) {
    return Status(StatusCode::kInvalidArgument, path + ": is a directory; name a file in it");
  }
  if (!S_ISREG(info.st_mode)) {
    return Status(StatusCode::kInvalidArgument, path + ": is not a regular file");
  }
  MappedFile file;
  if (info.st_size == 0) return file;
  if (static_cast<uint64_t>(info.st_size) > SIZE_MAX) {
    return Status(StatusCode::kResourceExhausted, path + ": is too large for the address space");
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return system_error(path, "cannot map", errno);
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::release(std::span<const std::byte> part) const {
  const std::less<> before;
  if (data_ == nullptr || before(part.data(), data_) || before(data_ + size_, part.data())) return;
  const auto offset = static_cast<size_t>(part.data() - data_);
  if (part.size() > size_ - offset) return;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t begin = (offset + page - 1) / page * page;
  const size_t end = (offset + part.size()) / page * page;
  // Only advice: nothing is lost if the system does not take it.
  if (begin < end) madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace aerie

#include "format/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/files.h"

namespace aerie {
namespace {

constexpr int kAttempts = 1000;

// A rename is on the disk when its folder is.
void sync_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);  // some file systems cannot: then there is nothing to be done
  close(fd);
}

}  // namespace

OutputFile::OutputFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Expected<OutputFile> OutputFile::create(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return invalid_argument("{}: is there already and is not a regular file", path);
  }
  // A name that no running program has, unless one that ended badly had this process's number.
  for (int attempt = 0;; ++attempt) {
    std::string temporary = fmt::format("{}.{}.{}", path, getpid(), attempt);
    const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return OutputFile(path, std::move(temporary), fd);
    if (errno != EEXIST || attempt == kAttempts) {
      return system_error(path, "cannot write here", errno);
    }
  }
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  assert(fd_ >= 0);
  size_ += static_cast<int64_t>(bytes.size());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const int error = write_all(fd_, text);
  return error == 0 ? Status() : system_error(path_, "cannot write", error);
}

Status OutputFile::pad_to(int64_t alignment) {
  static constexpr std::array<std::byte, 4096> kZeros = {};
  assert(alignment > 0 && alignment <= static_cast<int64_t>(kZeros.size()));
  const int64_t padding = (alignment - size_ % alignment) % alignment;
  return write(std::span(kZeros).first(static_cast<size_t>(padding)));
}

Status OutputFile::commit(Sync sync) {
  assert(fd_ >= 0);
  if (sync == Sync::kYes && fsync(fd_) != 0) return system_error(path_, "cannot write", errno);
  if (close(std::exchange(fd_, -1)) != 0) return system_error(path_, "cannot write", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return system_error(path_, "cannot take its name", errno);
  }
  temporary_.clear();
  if (sync == Sync::kYes) sync_folder_of(path_);
  return Status();
}

}  // namespace aerie

#include "format/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/files.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

constexpr int kAttempts = 1000;
constexpr int kMostLinks = 40;
constexpr const char* kCannotWrite = "cannot write here";

fs::path folder_of(const fs::path& path) {
  const fs::path folder = path.parent_path();
  return folder.empty() ? "." : folder;
}

// A rename is on the disk when its folder is.
void sync_folder_of(const std::string& path) {
  const int fd = open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);  // some file systems cannot: then there is nothing to be done
  close(fd);
}

// The number of what lies in the folder of this process's descriptors.
std::optional<int> own_descriptor(const fs::path& folder, const fs::path& path) {
  if (folder != fmt::format("/proc/{}/fd", getpid())) return std::nullopt;
  const std::string name = path.filename().string();
  int number = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

std::string descriptor_path(int fd) {
  return fmt::format("/proc/self/fd/{}", fd);
}

// Without a name there is nothing to be left behind, however this process ends.
int open_nameless(const std::string& path, unsigned mode) {
  const int fd = open(folder_of(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  if (fd < 0 || access(descriptor_path(fd).c_str(), F_OK) == 0) return fd;
  close(fd);
  return -1;
}

// A name that no running program has, unless one that ended badly had this process's number; `make`
// makes it and answers below 0 if it cannot. Empty: errno says why.
template <typename Make>
std::string make_temporary(const std::string& path, const Make& make) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string name = fmt::format("{}.{}.{}", path, getpid(), attempt);
    if (make(name.c_str()) >= 0) return name;
    if (errno != EEXIST) break;
  }
  return {};
}

}  // namespace

Expected<OutputPlace> find_output(const std::string& path) {
  struct stat info = {};
  const auto refused = [&] { return system_error(path, kCannotWrite, errno); };
  // Of a link that must not be followed, this is an error.
  const bool is_there = stat(path.c_str(), &info) == 0;
  if (!is_there && errno != ENOENT) return refused();
  fs::path place = path;
  for (int links = 0;; ++links) {
    std::error_code error;
    const fs::path folder = fs::canonical(folder_of(place), error);
    if (!error) {
      if (const auto number = own_descriptor(folder, place)) {
        const int fd = fcntl(*number, F_DUPFD_CLOEXEC, 3);
        if (fd < 0) return refused();
        return OutputPlace{place.string(), fd};
      }
    }
    if (!fs::is_symlink(fs::symlink_status(place, error))) break;
    errno = ELOOP;
    if (links == kMostLinks) return refused();
    place = folder / fs::read_symlink(place, error);
  }
  if (!is_there || S_ISREG(info.st_mode)) return OutputPlace{place.string()};
  if (S_ISDIR(info.st_mode)) {
    return invalid_argument("{}: is there already and is not a regular file", path);
  }
  const int fd = open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return refused();
  return OutputPlace{path, fd};
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      is_regular_(other.is_regular_),
      size_(other.size_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Expected<OutputFile> OutputFile::create(const std::string& path, unsigned mode) {
  AERIE_ASSIGN_OR_RETURN(const OutputPlace place, find_output(path));
  if (place.descriptor >= 0) return OutputFile(path, place.descriptor, false);
  return create_beside(place.path, mode);
}

Expected<OutputFile> OutputFile::create_beside(const std::string& path, unsigned mode) {
  struct stat info = {};
  const bool is_there = stat(path.c_str(), &info) == 0;
  if (is_there && access(path.c_str(), W_OK) != 0) return system_error(path, kCannotWrite, errno);
  OutputFile file(path, open_nameless(path, mode), true);
  if (file.fd_ < 0) {
    file.temporary_ = make_temporary(path, [&](const char* name) {
      return file.fd_ = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    });
  }
  if (file.fd_ < 0) return system_error(path, kCannotWrite, errno);
  if (is_there) {
    // Who may not give files away keeps them.
    [[maybe_unused]] const int ignored = fchown(file.fd_, info.st_uid, info.st_gid);
    fchmod(file.fd_, info.st_mode & 07777);
  }
  return file;
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

// A rename replaces what is there, a link does not.
Status OutputFile::name_temporary() {
  if (!temporary_.empty()) return {};
  const std::string from = descriptor_path(fd_);
  temporary_ = make_temporary(path_, [&](const char* name) {
    return linkat(AT_FDCWD, from.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW);
  });
  return temporary_.empty() ? system_error(path_, kCannotWrite, errno) : Status();
}

Status OutputFile::commit(Sync sync) {
  assert(fd_ >= 0);
  if (!is_regular_) {
    if (close(std::exchange(fd_, -1)) == 0) return {};
    return system_error(path_, "cannot write", errno);
  }
  if (sync == Sync::kYes && fsync(fd_) != 0) return system_error(path_, "cannot write", errno);
  AERIE_RETURN_IF_ERROR(name_temporary());
  if (close(std::exchange(fd_, -1)) != 0) return system_error(path_, "cannot write", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    return system_error(path_, "cannot take its name", errno);
  }
  temporary_.clear();
  if (sync == Sync::kYes) sync_folder_of(path_);
  return Status();
}

Status write_file(const std::string& path, std::string_view text, unsigned mode) {
  AERIE_ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path, mode));
  AERIE_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace aerie

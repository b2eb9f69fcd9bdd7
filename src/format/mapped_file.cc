#include "format/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "format/input_file.h"

namespace aerie {

Expected<MappedFile> MappedFile::open(const std::string& path) {
  AERIE_ASSIGN_OR_RETURN(const InputFile input, InputFile::open(path));
  MappedFile file;
  file.path_ = path;
  file.modified_ = input.modified();
  file.device_ = input.device();
  file.inode_ = input.inode();
  if (input.size() == 0) return file;
  if (static_cast<uint64_t>(input.size()) > SIZE_MAX) {
    return resource_exhausted("{}: is too large for the address space", path);
  }
  const auto size = static_cast<size_t>(input.size());
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, input.descriptor(), 0);
  if (data == MAP_FAILED) return system_error(path, "cannot map", errno);
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = size;
  file.faults_ = MappingFaults(data, size);
  return file;
}

MappedFile::~MappedFile() {
  faults_ = MappingFaults();
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_(other.modified_),
      path_(std::move(other.path_)),
      device_(other.device_),
      inode_(other.inode_),
      faults_(std::move(other.faults_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(modified_, other.modified_);
  std::swap(path_, other.path_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  faults_ = std::move(other.faults_);
  return *this;
}

Status MappedFile::check() const {
  if (faults_.any()) {
    return invalid_data("{}: cannot be read whole: it was cut short meanwhile, or its disk fails",
                        path_);
  }
  struct stat info = {};
  if (path_.empty() || stat(path_.c_str(), &info) != 0) return {};
  if (info.st_dev != device_ || info.st_ino != inode_) return {};
  if (static_cast<size_t>(info.st_size) == size_ && modified_time(info) == modified_) return {};
  return invalid_data("{}: was written to while it was read; try again when it is whole", path_);
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

// Output that a path names: a file that appears whole or not at all, or a device or a pipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace aerie {

// Where output to a path goes, links followed: to a regular file at `path`, which is there or is to
// be made; or, if it is not -1, to `descriptor`, which the caller closes. That is a device or a
// pipe, or one of this process's own descriptors (/dev/stdout, /dev/fd/3) whatever it is.
struct OutputPlace {
  std::string path;
  int descriptor = -1;
};

// A pipe that nobody reads is waited for. kInvalidArgument for a folder and for what must not be
// written to.
Expected<OutputPlace> find_output(const std::string& path);

// Bytes for a regular file go to one without a name in the same folder (where the system has none
// such, to one beside it), which takes the wanted name when all are there and on the disk; mode and
// owner of a file that it replaces stay. Links are followed, and what is at their end is written.
// Devices and pipes are written to as they are, and what was written to them is not taken back.
//
// Moves, does not copy; one thread at a time.
class OutputFile {
 public:
  // What is at `path` stays as it is for now. kNotFound if there is no such folder,
  // kInvalidArgument if no file can be made there. A pipe is waited for as by find_output(). `mode`
  // is that of a file that was not there, but for what the process's umask takes away.
  static Expected<OutputFile> create(const std::string& path, unsigned mode = kUsualMode);
  static constexpr unsigned kUsualMode = 0666;

  // Without commit(), nothing is left of what was written to a file.
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  int64_t size() const { return size_; }  // of what was written

  // Appends. kResourceExhausted if the disk is full.
  Status write(std::span<const std::byte> bytes);
  // Appends zeros until size() is a multiple of `alignment` (at most 4096).
  Status pad_to(int64_t alignment);

  // Puts the file at its path, in the place of one that may be there. Nothing can be written after.
  // With Sync::kNo the disk is not waited for: should the whole system stop soon, the path may come
  // to name a file that lacks bytes.
  enum class Sync : uint8_t { kYes, kNo };
  Status commit(Sync sync = Sync::kYes);

 private:
  OutputFile(std::string path, int fd, bool is_regular)
      : path_(std::move(path)), fd_(fd), is_regular_(is_regular) {}
  static Expected<OutputFile> create_beside(const std::string& path, unsigned mode);
  Status name_temporary();

  std::string path_;       // links followed
  std::string temporary_;  // empty before it has one, and once it has its own name
  int fd_ = -1;
  bool is_regular_ = true;
  int64_t size_ = 0;
};

// A file of this text, or none, as by OutputFile.
Status write_file(const std::string& path, std::string_view text,
                  unsigned mode = OutputFile::kUsualMode);

}  // namespace aerie

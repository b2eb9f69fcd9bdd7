// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace aerie {

// Bytes go to a temporary file in the same folder, which takes the wanted name when all are there
// and on the disk. Moves, does not copy; one thread at a time.
class OutputFile {
 public:
  // What is at `path` stays as it is for now. kNotFound if there is no such folder,
  // kInvalidArgument if no file can be made there.
  static Expected<OutputFile> create(const std::string& path);

  // Without commit(), nothing is left of what was written.
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
  OutputFile(std::string path, std::string temporary, int fd);

  std::string path_;
  std::string temporary_;  // empty once it has its name
  int fd_ = -1;
  int64_t size_ = 0;
};

}  // namespace aerie

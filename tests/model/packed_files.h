// Caches of packed weights for tests: what a model says with one, and the files as weight_cache.h
// describes them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "format/model_file.h"
#include "kernels/backend.h"

namespace aerie {

// The logits after each of a few tokens, of a model loaded with this cache (empty: none).
std::vector<float> logits_of(const ModelFile& file, const std::string& cache,
                             kernels::Isa isa = kernels::best_isa());

// An empty folder for as long as it exists.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // Everything that it holds.
  std::vector<std::filesystem::path> files() const;
  // The one file that it holds; fails the test if there are others.
  std::filesystem::path file() const;

 private:
  std::string path_;
};

std::vector<std::byte> read_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, const std::vector<std::byte>& bytes);
// Another one is another file.
ino_t inode_of(const std::filesystem::path& path);

// A cache file taken apart and put together again with checksums that are right.
struct PackedFile {
  struct Entry {
    std::string name;
    uint64_t offset = 0, size = 0, checksum = 0;
    std::optional<uint32_t> name_length;  // what the file says it is, if it lies
  };
  std::vector<std::byte> bytes;
  uint64_t count = 0;
  std::vector<Entry> entries;

  explicit PackedFile(std::vector<std::byte> file);
  uint64_t index_bytes() const;
  // With `count` and `entries` as they are; the index must not have grown.
  std::vector<std::byte> forged() const;
};

}  // namespace aerie

// Packed weights in a file, from which a model that was packed before opens by reading.
//
// A folder holds a file for each model, instruction set and type of weights, named after them. A
// file is used only for what it was made from, as format/fingerprint.h tells it, by this version of
// the packing, and only if all that is read of it has the checksum that was written with it. It is
// not protected against forgery: whoever can write to the folder can change what the model says.
//
// Layout, little-endian: "aeriepk1", u64 fingerprint, u64 bytes of the index, u64 checksum of the
// index; from byte 64 on the index; then the entries' bytes, each from a multiple of 4096 on. The
// index is u64 count, and for each entry u32 length of the name, the name, u64 offset, u64 size,
// u64 checksum.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/thread_pool.h"
#include "format/input_file.h"
#include "format/model_file.h"
#include "kernels/backend.h"

namespace aerie {

// To be raised whenever the same files come to other packed bytes than before: by another layout of
// panels, another conversion, another order of rows. tests/model/weight_cache_test.cc notices.
inline constexpr int kPackingVersion = 1;

class WeightCache {
 public:
  struct Entry {
    int64_t offset = 0;
    int64_t size = 0;
    uint64_t checksum = 0;
  };
  struct Item {
    std::string name;
    std::span<const std::byte> bytes;
  };

  // The cache of one model. kUnsupported if it cannot be told what `file` is made of. Both must
  // outlive the object.
  static Expected<WeightCache> of(const std::string& folder, const ModelFile& file,
                                  const kernels::Backend& backend);

  const std::string& path() const { return path_; }

  // Opens what is there. kNotFound if there is nothing; any other error says why it is of no use.
  Status open();
  // Then there is nothing to be found.
  void close();

  // Null unless the file is open and has an entry of this name and size.
  const Entry* find(std::string_view name, int64_t size) const;
  // Fills `part` from byte `offset` of the entry, a multiple of 64, on, and adds its checksum to
  // `sum`: what was read is right if all parts' make up the entry's. Safe to call from several
  // threads.
  Status read(const Entry& entry, int64_t offset, std::span<std::byte> part,
              std::atomic<uint64_t>& sum) const;

  // Puts a file with these items in the place of what is there, whole or not at all, and makes the
  // folder if need be. Several processes may do so at a time.
  Status save(std::span<const Item> items, ThreadPool& pool) const;

 private:
  WeightCache(std::string path, uint64_t fingerprint)
      : path_(std::move(path)), fingerprint_(fingerprint) {}
  Status read_index(const InputFile& file);

  std::string path_;
  uint64_t fingerprint_;
  std::optional<InputFile> file_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace aerie

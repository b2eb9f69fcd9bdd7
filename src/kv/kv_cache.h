// The paged cache of keys and values. A sequence's positions are spread over pages of
// kernels::kPagePositions; its committed length is the boundary between what is settled and the
// rows of the pass under way.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/model_config.h"
#include "kernels/kv_layout.h"
#include "tensor/tensor.h"

namespace aerie {

// Not thread-safe, except that rows of one pass may be written from several threads.
class KvCache {
 public:
  using Id = int32_t;

  // Room for `positions` positions (rounded up to pages) shared by at most `sequences` sequences.
  static Expected<KvCache> create(const ModelConfig& config, int64_t positions, int sequences,
                                  kernels::KvType type = kernels::KvType::kF16);

  // The memory that create() would take.
  static int64_t bytes_needed(const ModelConfig& config, int64_t positions,
                              kernels::KvType type = kernels::KvType::kF16);

  // A new, empty sequence. kResourceExhausted if all are open.
  Expected<Id> open();
  // Frees its pages.
  void close(Id id);

  // Makes room for `rows` entries after the committed ones: entry i will lie at slot(id, i). All or
  // nothing: kResourceExhausted if the pages do not suffice. Pages once had are kept until close().
  Status reserve(Id id, int rows);
  int32_t slot(Id id, int entry) const;

  // Keeps the entries `path` (ascending indices of reserved entries) as the next positions and
  // drops all others. Moves rows, computes nothing: keys are stored with their position's rotation,
  // which is root position + depth.
  void commit(Id id, std::span<const int32_t> path);
  // Keeps the first `count` entries.
  void commit_first(Id id, int count);
  // Drops committed positions from `length` on. Requires length <= committed(id).
  void truncate(Id id, int length);

  int committed(Id id) const { return sequence(id).committed; }
  // Holds until the next reserve() or close() of the sequence.
  std::span<const int32_t> pages(Id id) const { return sequence(id).pages; }

  const kernels::KvLayout& layout() const { return layout_; }
  int layers() const { return static_cast<int>(planes_.size()); }
  std::byte* plane(int layer) { return planes_[static_cast<size_t>(layer)].data(); }
  int64_t positions() const { return int64_t{page_count_} * kernels::kPagePositions; }
  int free_pages() const { return static_cast<int>(free_.size()); }

 private:
  struct Sequence {
    bool open = false;
    int committed = 0;
    std::vector<int32_t> pages;  // capacity for all pages is reserved at creation
  };

  KvCache() = default;
  Sequence& sequence(Id id) { return sequences_[static_cast<size_t>(id)]; }
  const Sequence& sequence(Id id) const { return sequences_[static_cast<size_t>(id)]; }
  static int32_t slot_at(const Sequence& s, int position) {
    return s.pages[static_cast<size_t>(position / kernels::kPagePositions)] *
               kernels::kPagePositions +
           position % kernels::kPagePositions;
  }

  kernels::KvLayout layout_;
  int page_count_ = 0;
  std::vector<Buffer> planes_;  // one for each layer
  std::vector<Sequence> sequences_;
  std::vector<int32_t> free_;
};

}  // namespace aerie

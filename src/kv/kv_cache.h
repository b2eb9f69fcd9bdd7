// The paged cache of keys and values. A sequence's positions are spread over pages of
// kernels::kPagePositions; its committed length is the boundary between what is settled and the
// rows of the pass under way. Pages may be shared: what one sequence read, others that begin alike
// need not read again.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/model_config.h"
#include "kernels/kv_layout.h"
#include "kv/prefix_tree.h"
#include "tensor/tensor.h"

namespace aerie {

// Not thread-safe, except that rows of one pass may be written from several threads.
class KvCache {
 public:
  using Id = int32_t;

  // Room for `positions` (below 2^31, rounded up to pages) shared by at most `sequences` sequences.
  static Expected<KvCache> create(const ModelConfig& config, int64_t positions, int sequences,
                                  kernels::KvType type = kernels::KvType::kF16);

  // The memory that create() would take.
  static int64_t bytes_needed(const ModelConfig& config, int64_t positions,
                              kernels::KvType type = kernels::KvType::kF16);

  // A new, empty sequence. kResourceExhausted if all are open.
  Expected<Id> open();
  // Frees its pages, but for those that are kept or shared.
  void close(Id id);

  // Makes room for `rows` entries after the committed ones: entry i will lie at slot(id, i), in a
  // page that is the sequence's alone (of one that is shared it gets a copy). All or nothing:
  // kResourceExhausted if the pages do not suffice, those of kept prefixes that nobody reads
  // counted. Pages once had are kept until close().
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

  // Keeps the first keys.size() committed entries for sequences to come, until the pages are
  // needed. An entry's content must be a function of its key and the keys before it. Without `tail`
  // a page that is not full is left out, for a sequence that goes on. Of what is kept already the
  // sequence gives up its own copy. What is kept for one tenant is not there for another.
  void keep(Id id, std::span<const PrefixKey> keys, bool tail = true, std::string_view tenant = {});
  // How many entries of a sequence with these keys are kept.
  int kept(std::span<const PrefixKey> keys, std::string_view tenant = {}) const {
    return prefixes_.length(tenant, keys);
  }
  // Begins a sequence that is empty yet with as many of these as are kept, and returns the number.
  int adopt(Id id, std::span<const PrefixKey> keys, std::string_view tenant = {});
  // Drops all that is kept.
  void drop_kept();

  int committed(Id id) const { return sequence(id).committed; }
  // Holds until the next reserve(), keep() or close() of the sequence.
  std::span<const int32_t> pages(Id id) const { return sequence(id).pages; }

  const kernels::KvLayout& layout() const { return layout_; }
  int layers() const { return static_cast<int>(planes_.size()); }
  std::byte* plane(int layer) { return planes_[static_cast<size_t>(layer)].data(); }
  int64_t positions() const { return int64_t{page_count_} * kernels::kPagePositions; }
  int free_pages() const { return static_cast<int>(free_.size()); }
  int pages() const { return page_count_; }
  // Of sequences that are open.
  int used_pages() const { return page_count_ - free_pages() - kept_alone_; }

 private:
  struct Sequence {
    bool open = false;
    int committed = 0;
    std::vector<int32_t> pages;  // capacity for all pages is reserved at creation
  };

  KvCache() = default;
  int32_t take_page();
  void drop_page(int32_t page);
  bool shared(int32_t page) const { return references_[static_cast<size_t>(page)] > 1; }
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
  std::vector<int32_t> references_;  // [page]: of open sequences, and of prefixes_
  std::vector<bool> is_kept_;        // [page]: prefixes_ has it
  int kept_alone_ = 0;               // pages that prefixes_ has and no sequence
  PrefixTree prefixes_;
  std::vector<int32_t> found_;  // scratch
};

}  // namespace aerie

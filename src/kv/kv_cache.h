// The paged cache of keys and values. A sequence's positions are spread over pages of
// kernels::kPagePositions; its committed length is the boundary between what is settled and the
// rows of the pass under way. Pages may be shared: what one sequence read, others that begin alike
// need not read again. Layers with a window may have fewer pages than the others, of what sequences
// still see alone (WindowPages). What layers with linear attention keep instead is in StateStore.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/model_config.h"
#include "kernels/kv_layout.h"
#include "kv/kv_journal.h"
#include "kv/prefix_tree.h"
#include "kv/slot_moves.h"
#include "kv/state_store.h"
#include "kv/window_pages.h"
#include "tensor/tensor.h"

namespace aerie {

// Not thread-safe, except that rows of one pass may be written from several threads.
class KvCache {
 public:
  using Id = int32_t;

  // Of layers that keep states: rows of all sequences that are reserved or committed and that no
  // later pass has seen, those that were reserved as settled apart (0: as many as positions); and
  // beginnings of sequences that are kept beside as many as there are sequences.
  struct States {
    int64_t loose_rows = 0;
    int snapshots = 0;
  };

  // Of layers with a window: for how many sequences these hold what is seen at a time, beginnings
  // that are kept counted, and how many rows of all of them together they take in a pass (0: such
  // layers hold all positions, as others do). See WindowPages for `behind`.
  struct Windows {
    int64_t rows = 0;
    int sequences = 0;
    int behind = kernels::kPagePositions;
  };

  // Where keys and values lie. Elsewhere: with who runs the passes, as on a device; then this has
  // no memory for them, and what it would have copied there is written down (moves()).
  enum class Planes : uint8_t { kHere, kElsewhere };

  struct Creation {
    int64_t positions = 0;
    int sequences = 0;
    kernels::KvType type = kernels::KvType::kF16;
    States states = {0, 0};
    Windows windows = {0, 0, kernels::kPagePositions};
    Planes planes = Planes::kHere;
    // Of planes elsewhere, how many layers, from the first on, have theirs here all the same: what
    // is copied in these is written down as well. The same is true of states.
    int here = 0;
  };

  // Room for `positions` (below 2^31, rounded up to pages) shared by at most `sequences` sequences.
  // kUnsupported for layers with windows beside layers that keep states, if `windows` has rows, and
  // for planes elsewhere if any layer has fewer pages than others.
  static Expected<KvCache> create(const ModelConfig& config, const Creation& creation);
  static Expected<KvCache> create(const ModelConfig& config, int64_t positions, int sequences,
                                  kernels::KvType type = kernels::KvType::kF16,
                                  const States& states = {0, 0},
                                  const Windows& windows = {0, 0, 0}) {
    return create(config, {positions, sequences, type, states, windows, Planes::kHere, 0});
  }

  // Of bytes_needed(), what is here.
  static int64_t bytes_here(const ModelConfig& config, const Creation& creation);

  // What create() was called with, its configuration apart.
  const Creation& creation() const { return creation_; }
  // From now on all calls that change the cache, but for what passes write, are added to it, which
  // must outlive the cache or the next call of this; null: to none.
  void write_down(KvJournal* journal) { journal_ = journal; }

  // The memory that create() would take: of positions, and of states.
  static int64_t bytes_needed(const ModelConfig& config, int64_t positions,
                              kernels::KvType type = kernels::KvType::kF16,
                              const Windows& windows = {0, 0, 0});
  static int64_t state_bytes_needed(const ModelConfig& config, int sequences, const States& states);
  // Of both, wherever the planes lie: elsewhere they hold all positions, whatever the windows are.
  static int64_t bytes_needed(const ModelConfig& config, const Creation& creation);

  // A new, empty sequence. kResourceExhausted if all are open.
  Expected<Id> open();
  // Frees its pages, but for those that are kept or shared.
  void close(Id id);

  // Makes room for `rows` entries after the committed ones: entry i will lie at slot(id, i), in a
  // page that is the sequence's alone (of one that is shared it gets a copy). All or nothing:
  // kResourceExhausted if the pages do not suffice, those of kept prefixes that nobody reads
  // counted. Pages once had are kept until close(), but for those of layers with a window, which go
  // as the boundary moves on. The first `settled` of them will be committed as they come, whatever
  // they are, by a pass with no other row of the sequence (BatchSequence::settled).
  Status reserve(Id id, int rows, int settled = 0);
  int32_t slot(Id id, int entry) const;

  // Keeps the entries `path` (ascending indices of reserved entries) as the next positions and
  // drops all others. Moves rows, computes nothing: keys are stored with their position's rotation,
  // which is root position + depth.
  void commit(Id id, std::span<const int32_t> path);
  // Keeps the first `count` entries.
  void commit_first(Id id, int count);
  // Drops committed positions from `length` on, and those before that cannot be gone on from: what
  // a state holds of more, or what a window would see and is gone. Returns how many are left.
  // Requires length <= committed(id).
  int truncate(Id id, int length);
  // For measurements: the sequence has that many entries, whatever they hold. kResourceExhausted as
  // in reserve().
  Status assume(Id id, int length);

  // Keeps the first keys.size() committed entries for sequences to come, until the pages are
  // needed. An entry's content must be a function of its key and the keys before it. Without `tail`
  // a page that is not full is left out, for a sequence that goes on. Of what is kept already the
  // sequence gives up its own copy. What is kept for one tenant is not there for another.
  void keep(Id id, std::span<const PrefixKey> keys, bool tail = true, std::string_view tenant = {});
  // How many entries of a sequence with these keys are kept: up to the last place of which there is
  // a state, or all that a window sees.
  int kept(std::span<const PrefixKey> keys, std::string_view tenant = {}) const;
  // The same without regard to states and windows.
  int kept_pages(std::span<const PrefixKey> keys, std::string_view tenant = {}) const {
    return prefixes_.length(tenant, keys);
  }
  // Begins a sequence that is empty yet with as many of these as are kept, and returns the number.
  int adopt(Id id, std::span<const PrefixKey> keys, std::string_view tenant = {});
  // Drops all that is kept.
  void drop_kept();
  // Whether others can begin anywhere in what is kept. If not, only where there is a state, or what
  // windows see: always at an end that was kept, until the room is needed.
  bool begins_anywhere() const { return !states_ && !windows_; }
  // Whether others could begin with the first `length` entries now, were they kept: of windows
  // alone.
  bool can_begin_at(Id id, int length) const;
  // Others may begin there: of what windows see of it, what is there goes last.
  void value_beginning(Id id, int length);

  int committed(Id id) const { return sequence(id).committed; }
  // Holds until the next reserve(), keep() or close() of the sequence.
  std::span<const int32_t> pages(Id id) const { return sequence(id).pages; }

  const kernels::KvLayout& layout(int layer = 0) const {
    return layouts_[layouts_.size() == 1 ? 0 : static_cast<size_t>(layer)];
  }
  int layers() const { return static_cast<int>(planes_.size()); }
  // Null for a layer that keeps states, and for one that reads another's keys and values; for all
  // if planes are elsewhere.
  std::byte* plane(int layer) { return planes_[static_cast<size_t>(layer)].data(); }
  bool keeps_state(int layer) const { return keeps_state_[static_cast<size_t>(layer)]; }
  // Whether the layer has keys and values of its own.
  bool keeps_kv(int layer) const { return keeps_kv_[static_cast<size_t>(layer)]; }
  // Null if no layer keeps states. A pass reads and advances them; all else goes through the cache.
  StateStore* states() { return states_ ? &*states_ : nullptr; }
  const StateStore* states() const { return states_ ? &*states_ : nullptr; }
  // Of the layers before this one, those that keep states: the number of this one's plane there.
  int state_plane(int layer) const { return state_planes_[static_cast<size_t>(layer)]; }
  // Null if all layers with keys and values have a place for every page. Else those for which
  // has_places() have them for some: slot i of page p is slot i of page windows()->place(p) there.
  const WindowPages* windows() const { return windows_ ? &*windows_ : nullptr; }
  bool has_places(int layer) const { return windows_ && has_window_[static_cast<size_t>(layer)]; }
  // Where planes are elsewhere: the entries that commit() and reserve() would have copied since the
  // last clear_moves(). They are to be copied there, in this order, before the next pass.
  std::span<const SlotMove> moves() const {
    return moves_ ? moves_->list() : std::span<const SlotMove>();
  }
  void clear_moves() {
    if (moves_) moves_->clear();
  }
  // A place for the state behind the first `length` positions, which the coming pass computes as
  // settled rows, so that others may begin with it (BatchRow::snapshot); -1: none is wanted, or to
  // be had.
  int32_t claim_snapshot(Id id, int length);
  int64_t positions() const { return int64_t{page_count_} * kernels::kPagePositions; }
  // That create() took for positions, or whoever has the planes: bytes_needed().
  int64_t bytes() const { return bytes_; }
  int free_pages() const { return static_cast<int>(free_.size()); }
  int pages() const { return page_count_; }
  // Of sequences that are open.
  int used_pages() const { return page_count_ - free_pages() - kept_alone_; }

 private:
  struct Sequence {
    bool open = false;
    int committed = 0;
    std::vector<int32_t> pages;  // capacity for all pages is reserved at creation
    int first = 0, last = 0;     // of pages, those that it needs in windows_
  };

  KvCache() = default;
  Status make_windows(const ModelConfig& config);
  Status make_planes(const ModelConfig& config);
  int32_t take_page();
  void drop_page(int32_t page);
  void copy_entry(int32_t from, int32_t to);
  void own_partial_page(Sequence& s);
  Status check_room(const Sequence& s, int64_t wanted, int rows, bool copies) const;
  void add_pages(Sequence& s, int64_t wanted);
  void slide(Sequence& s);
  int first_needed(std::span<const int32_t> pages, int length) const;
  bool sees_all(std::span<const int32_t> pages, int length) const;
  void move_window(Sequence& s, int length);
  PrefixTree::Match last_beginning() const;
  size_t most_shared(const Sequence& s, std::span<const PrefixKey> keys,
                     std::string_view tenant) const;
  void share_page(Sequence& s, size_t index, int32_t page);
  void mark_valued(Id id, int length);
  bool shared(int32_t page) const { return references_[static_cast<size_t>(page)] > 1; }
  Sequence& sequence(Id id) { return sequences_[static_cast<size_t>(id)]; }
  const Sequence& sequence(Id id) const { return sequences_[static_cast<size_t>(id)]; }
  static int32_t slot_at(const Sequence& s, int position) {
    return s.pages[static_cast<size_t>(position / kernels::kPagePositions)] *
               kernels::kPagePositions +
           position % kernels::kPagePositions;
  }

  Creation creation_;
  KvJournal* journal_ = nullptr;
  std::vector<kernels::KvLayout> layouts_;  // one for all layers, or one for each
  int page_count_ = 0;
  std::vector<Buffer> planes_;  // one for each layer
  int64_t bytes_ = 0;           // of all of them, wherever they are
  std::optional<SlotMoves> moves_;
  std::optional<StateStore> states_;
  std::vector<int> state_planes_;             // [layer]
  std::vector<bool> keeps_state_, keeps_kv_;  // the same
  std::optional<WindowPages> windows_;
  std::vector<bool> has_window_;  // [layer]; empty: none has one
  std::vector<Sequence> sequences_;
  std::vector<int32_t> free_;
  std::vector<int32_t> references_;  // [page]: of open sequences, and of prefixes_
  std::vector<bool> is_kept_;        // [page]: prefixes_ has it
  int kept_alone_ = 0;               // pages that prefixes_ has and no sequence
  PrefixTree prefixes_;
  std::vector<int32_t> found_;                      // scratch
  mutable std::vector<PrefixTree::Match> matches_;  // the same
  mutable std::vector<int32_t> path_;               // the same
};

}  // namespace aerie

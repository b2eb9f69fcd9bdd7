// What the layers with linear attention keep of the sequences of a cache, in the place of keys and
// values: a state each (kernels/state_layout.h), which holds all positions before its layer's base,
// and the records of the rows since. A pass brings the records of committed rows into the state and
// writes new ones, so that a draft is rolled back by forgetting records. Beside them snapshots:
// states of beginnings of sequences, for others that begin alike.
//
// Of planes that are elsewhere, as on a device, this has no memory: what it would have done there
// is written down (moves()).
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/model_config.h"
#include "kernels/state_layout.h"
#include "kv/prefix_tree.h"
#include "kv/state_moves.h"
#include "tensor/tensor.h"

namespace aerie {

kernels::StateLayout state_layout(const ModelConfig& config);

// Part of a KvCache, which says what the calls require. Not thread-safe.
class StateStore {
 public:
  using Id = int32_t;

  struct Sizes {
    int sequences = 0;
    int64_t records = 0;  // rows, of all sequences together, that may be rolled back
    int snapshots = 0;
    int here = kAllHere;  // so many planes, from the first on, have their memory here

    int slots() const { return sequences + snapshots; }
  };
  static constexpr int kAllHere = -1;

  // For the layers of the configuration that keep states. Memory is taken as it is written to.
  static Expected<StateStore> create(const ModelConfig& config, const Sizes& sizes);
  // Wherever they lie.
  static int64_t bytes_needed(const ModelConfig& config, const Sizes& sizes);

  void open(Id id);
  void close(Id id);

  // Records for entries [settled, rows) behind the committed ones; all or nothing:
  // kResourceExhausted.
  Status reserve(Id id, int committed, int rows, int settled);
  // Keeps the records of these entries (ascending), and no other.
  void commit(Id id, int committed, std::span<const int32_t> path);
  // Entries were committed as they lie.
  void commit_first(Id id) { at(id).whole = {}; }
  // Drops what came behind `length`. Where states are already beyond, goes back to the last of the
  // sequence's snapshots that is not, or to the beginning. Returns the length that is left.
  int truncate(Id id, int length);
  // The sequence has this length, whatever its states hold.
  void assume(Id id, int length);

  // For a pass. The state's slot, and how many positions the state of a plane holds.
  int32_t slot(Id id) const { return at(id).slot; }
  int base(Id id, int plane) const { return at(id).bases[static_cast<size_t>(plane)]; }
  // The records of positions [from, to), which must be there.
  std::span<const int32_t> records(Id id, int from, int to) const;
  // The state of a plane now holds the first `length` positions.
  void advance(Id id, int plane, int length) { at(id).bases[static_cast<size_t>(plane)] = length; }

  // A slot into which a pass may write the state behind the first `length` positions, which it
  // computes and which will be committed; -1: there is none to be had.
  int32_t claim(Id id, int length);
  // Lets others find what was claimed up to `length`: pages[i] holds the positions from i *
  // kPagePositions on. `whole`: and the sequence's own state, once it is closed.
  void keep(Id id, std::span<const int32_t> pages, int length, bool whole);
  // The longest beginning of which there is a snapshot, in one of these pages: the page, and how
  // many of its positions; a depth of -1: there is none.
  PrefixTree::Match kept(std::span<const PrefixTree::Match> pages) const;
  // Begins a sequence with that many, which kept() gave, and marks them as used.
  void adopt(Id id, std::span<const int32_t> pages, int length);
  // The page is gone; all are.
  void drop_page(int32_t page);
  void drop_kept();

  const kernels::StateLayout& layout() const { return layout_; }
  const Sizes& sizes() const { return sizes_; }
  // What is to be done to planes elsewhere since the last clear_moves(), in this order, before the
  // next pass. Moves of planes that are here are among them where they are of all planes.
  std::span<const StateMove> moves() const {
    return moves_ ? moves_->list() : std::span<const StateMove>();
  }
  void clear_moves() {
    if (moves_) moves_->clear();
  }
  // Planes before this one are here.
  int planes_here() const { return here_; }
  // Of planes that are here.
  float* states(int plane) { return states_[static_cast<size_t>(plane)].as<float>().data(); }
  float* records(int plane) { return records_[static_cast<size_t>(plane)].as<float>().data(); }
  int planes() const { return static_cast<int>(states_.size()); }
  int free_records() const { return static_cast<int>(free_records_.size()); }
  int snapshots() const { return static_cast<int>(snapshots_.size()); }

 private:
  // Of the beginning of a sequence that ends in `page`, with as many of its positions.
  struct Place {
    int32_t page = 0;
    int positions = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Snapshot {
    int32_t slot = 0;
    std::list<Place>::iterator use;
  };
  struct Claim {
    int length = 0;
    int32_t slot = 0;
  };
  struct Sequence {
    int32_t slot = -1;
    std::vector<int> bases;        // [plane]
    int first = 0;                 // the position of the first of
    std::vector<int32_t> records;  // [position - first]; -1: the row was settled
    std::vector<Claim> claims;     // ascending
    Place whole;                   // where the state goes at close(); no positions: nowhere
    int whole_length = 0;
  };

  StateStore() = default;
  Sequence& at(Id id) { return sequences_[static_cast<size_t>(id)]; }
  const Sequence& at(Id id) const { return sequences_[static_cast<size_t>(id)]; }
  static Place place_of(std::span<const int32_t> pages, int length);
  int32_t take_slot();
  void release(Sequence& s, size_t from, size_t to);
  void forget_applied(Sequence& s);
  void apply_all(Sequence& s, int length);
  void copy_state(int32_t from, int32_t to);
  void clear_state(int plane, int32_t slot);
  void apply(int plane, int32_t record, int32_t slot);
  void add_snapshot(const Place& place, int32_t slot);
  std::map<Place, Snapshot>::iterator drop(std::map<Place, Snapshot>::iterator snapshot);

  kernels::StateLayout layout_;
  Sizes sizes_;
  int here_ = 0;
  std::optional<StateMoves> moves_;       // where planes are elsewhere
  std::vector<Buffer> states_, records_;  // [plane]; of those elsewhere without memory
  std::vector<Sequence> sequences_;
  std::vector<int32_t> free_slots_, free_records_;
  std::map<Place, Snapshot> snapshots_;
  std::list<Place> used_;  // the longest unused first
  int most_claims_ = 0, claims_ = 0;
};

}  // namespace aerie

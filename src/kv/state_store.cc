#include "kv/state_store.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/errors.h"
#include "kernels/kv_layout.h"

namespace aerie {
namespace {

constexpr int kPerPage = kernels::kPagePositions;

size_t floats(int64_t count) {
  return static_cast<size_t>(count) * sizeof(float);
}

}  // namespace

kernels::StateLayout state_layout(const ModelConfig& config) {
  const LinearAttention& linear = config.linear;
  return {linear.heads,   linear.key_heads,
          linear.key_dim, linear.value_dim,
          linear.taps,    linear.tiled ? kernels::HeadOrder::kTiled : kernels::HeadOrder::kGrouped,
          linear.plain};
}

int64_t StateStore::bytes_needed(const ModelConfig& config, const Sizes& sizes) {
  const kernels::StateLayout layout = state_layout(config);
  return config.count_linear() *
         (sizes.slots() * layout.state() + sizes.records * layout.record()) *
         static_cast<int64_t>(sizeof(float));
}

Expected<StateStore> StateStore::create(const ModelConfig& config, const Sizes& sizes) {
  StateStore store;
  store.layout_ = state_layout(config);
  store.sizes_ = sizes;
  const int slots = sizes.slots(), planes = config.count_linear();
  store.here_ = sizes.here == kAllHere ? planes : sizes.here;
  if (store.here_ < planes) store.moves_.emplace(planes, slots);
  store.states_.resize(static_cast<size_t>(store.here_));
  store.records_.resize(static_cast<size_t>(store.here_));
  for (size_t plane = 0; plane < store.states_.size(); ++plane) {
    AERIE_ASSIGN_OR_RETURN(store.states_[plane],
                           Buffer::allocate(floats(slots * store.layout_.state())));
    AERIE_ASSIGN_OR_RETURN(store.records_[plane],
                           Buffer::allocate(floats(sizes.records * store.layout_.record())));
  }
  store.states_.resize(static_cast<size_t>(planes));
  store.records_.resize(static_cast<size_t>(planes));
  store.sequences_.resize(static_cast<size_t>(sizes.sequences));
  for (Sequence& s : store.sequences_) {
    s.bases.resize(store.states_.size());
    s.records.reserve(static_cast<size_t>(sizes.records));
    s.claims.reserve(static_cast<size_t>(sizes.snapshots));
  }
  // Those at the front are taken first, so that memory is touched as it is needed.
  for (int32_t slot = slots - 1; slot >= 0; --slot) store.free_slots_.push_back(slot);
  for (int64_t r = sizes.records - 1; r >= 0; --r) {
    store.free_records_.push_back(static_cast<int32_t>(r));
  }
  store.most_claims_ = sizes.snapshots;
  return store;
}

// Requires a free slot, or a snapshot that no sequence has claimed.
int32_t StateStore::take_slot() {
  if (free_slots_.empty()) {
    assert(!used_.empty());
    drop(snapshots_.find(used_.front()));
  }
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void StateStore::open(Id id) {
  Sequence& s = at(id);
  s.slot = take_slot();
  std::ranges::fill(s.bases, 0);
  s.first = 0;
  s.whole = {};
}

void StateStore::close(Id id) {
  Sequence& s = at(id);
  if (s.whole.positions > 0 && !snapshots_.contains(s.whole)) {
    apply_all(s, s.whole_length);
    add_snapshot(s.whole, s.slot);
  } else {
    free_slots_.push_back(s.slot);
  }
  s.slot = -1;
  release(s, 0, s.records.size());
  s.records.clear();
  for (const Claim& claim : s.claims) free_slots_.push_back(claim.slot);
  claims_ -= static_cast<int>(s.claims.size());
  s.claims.clear();
}

void StateStore::release(Sequence& s, size_t from, size_t to) {
  for (size_t i = to; i-- > from;) {
    if (s.records[i] >= 0) free_records_.push_back(s.records[i]);
  }
}

// Records that every plane has brought into its state.
void StateStore::forget_applied(Sequence& s) {
  const int applied = *std::ranges::min_element(s.bases);
  const auto count =
      std::min(s.records.size(), static_cast<size_t>(std::max(0, applied - s.first)));
  release(s, 0, count);
  s.records.erase(s.records.begin(), s.records.begin() + static_cast<ptrdiff_t>(count));
  s.first = s.records.empty() ? applied : s.first + static_cast<int>(count);
}

Status StateStore::reserve(Id id, int committed, int rows, int settled) {
  Sequence& s = at(id);
  forget_applied(s);
  // Behind the bases there may be rows that were settled; they have no records.
  if (s.records.empty()) s.first = committed;
  const auto begin = static_cast<size_t>(committed - s.first);
  const auto end = begin + static_cast<size_t>(rows);
  size_t missing = 0;
  for (size_t i = begin + static_cast<size_t>(settled); i < end; ++i) {
    missing += i >= s.records.size() || s.records[i] < 0 ? 1 : 0;
  }
  if (missing > free_records_.size()) {
    return resource_exhausted("{} rows of a draft were asked for, and there is room for {} more",
                              rows, free_records_.size());
  }
  if (s.records.size() < end) s.records.resize(end, -1);
  for (size_t i = begin + static_cast<size_t>(settled); i < end; ++i) {
    if (s.records[i] >= 0) continue;
    s.records[i] = free_records_.back();
    free_records_.pop_back();
  }
  return {};
}

void StateStore::commit(Id id, int committed, std::span<const int32_t> path) {
  Sequence& s = at(id);
  const auto begin = static_cast<size_t>(committed - s.first);
  for (size_t i = 0; i < path.size(); ++i) {
    std::swap(s.records[begin + i], s.records[begin + static_cast<size_t>(path[i])]);
  }
  if (!path.empty()) s.whole = {};
  // What is not needed now, others may need.
  release(s, begin + path.size(), s.records.size());
  s.records.resize(begin + path.size());
}

int StateStore::truncate(Id id, int length) {
  Sequence& s = at(id);
  std::erase_if(s.claims, [&](const Claim& claim) {
    if (claim.length <= length) return false;
    free_slots_.push_back(claim.slot);
    --claims_;
    return true;
  });
  s.whole = {};
  if (*std::ranges::max_element(s.bases) > length) {
    release(s, 0, s.records.size());
    s.records.clear();
    const int back = s.claims.empty() ? 0 : s.claims.back().length;
    if (back > 0) copy_state(s.claims.back().slot, s.slot);
    std::ranges::fill(s.bases, back);
    s.first = back;
    return back;
  }
  return length;
}

void StateStore::assume(Id id, int length) {
  Sequence& s = at(id);
  truncate(id, 0);
  std::ranges::fill(s.bases, length);
  s.first = length;
  for (int plane = 0; plane < planes(); ++plane) clear_state(plane, s.slot);
}

std::span<const int32_t> StateStore::records(Id id, int from, int to) const {
  const Sequence& s = at(id);
  if (from >= to) return {};
  assert(from >= s.first && to - s.first <= static_cast<int>(s.records.size()));
  return std::span(s.records).subspan(static_cast<size_t>(from - s.first),
                                      static_cast<size_t>(to - from));
}

// Brings the records up to `length` into the states.
void StateStore::apply_all(Sequence& s, int length) {
  for (int plane = 0; plane < planes(); ++plane) {
    int& base = s.bases[static_cast<size_t>(plane)];
    if (base == 0 && length > 0) clear_state(plane, s.slot);
    for (; base < length; ++base) {
      const int32_t record = s.records[static_cast<size_t>(base - s.first)];
      assert(record >= 0);
      apply(plane, record, s.slot);
    }
  }
}

void StateStore::clear_state(int plane, int32_t slot) {
  if (plane >= here_) return moves_->add({StateMove::Kind::kClear, plane, 0, slot});
  std::fill_n(states(plane) + slot * layout_.state(), layout_.state(), 0.0f);
}

void StateStore::apply(int plane, int32_t record, int32_t slot) {
  if (plane >= here_) return moves_->add({StateMove::Kind::kApply, plane, record, slot});
  kernels::apply_record(layout_, records(plane) + record * layout_.record(),
                        states(plane) + slot * layout_.state());
}

void StateStore::copy_state(int32_t from, int32_t to) {
  if (moves_) moves_->add({StateMove::Kind::kCopy, 0, from, to});
  for (int plane = 0; plane < here_; ++plane) {
    std::copy_n(states(plane) + from * layout_.state(), layout_.state(),
                states(plane) + to * layout_.state());
  }
}

StateStore::Place StateStore::place_of(std::span<const int32_t> pages, int length) {
  const int page = (length - 1) / kPerPage;
  return {pages[static_cast<size_t>(page)], length - page * kPerPage};
}

void StateStore::add_snapshot(const Place& place, int32_t slot) {
  used_.push_back(place);
  snapshots_[place] = {slot, std::prev(used_.end())};
}

std::map<StateStore::Place, StateStore::Snapshot>::iterator StateStore::drop(
    std::map<Place, Snapshot>::iterator snapshot) {
  free_slots_.push_back(snapshot->second.slot);
  used_.erase(snapshot->second.use);
  return snapshots_.erase(snapshot);
}

int32_t StateStore::claim(Id id, int length) {
  Sequence& s = at(id);
  // Of what sequences hold and others cannot find yet, some is left for the latter.
  const bool there = !s.claims.empty() && s.claims.back().length >= length;
  if (there || claims_ == most_claims_ || (free_slots_.empty() && used_.empty())) return -1;
  const int32_t slot = take_slot();
  s.claims.push_back({length, slot});
  ++claims_;
  return slot;
}

void StateStore::keep(Id id, std::span<const int32_t> pages, int length, bool whole) {
  Sequence& s = at(id);
  std::erase_if(s.claims, [&](const Claim& claim) {
    if (claim.length > length) return false;
    const Place place = place_of(pages, claim.length);
    if (snapshots_.contains(place)) {
      free_slots_.push_back(claim.slot);
    } else {
      add_snapshot(place, claim.slot);
    }
    --claims_;
    return true;
  });
  s.whole = whole && length > 0 ? place_of(pages, length) : Place{};
  s.whole_length = length;
}

PrefixTree::Match StateStore::kept(std::span<const PrefixTree::Match> pages) const {
  PrefixTree::Match best = {-1, -1, 0};
  for (const PrefixTree::Match& match : pages) {
    // The last one that is not behind what is the same.
    auto found = snapshots_.upper_bound({match.page, match.keys});
    if (found == snapshots_.begin()) continue;
    --found;
    const int positions = found->first.positions;
    if (found->first.page != match.page || match.depth < best.depth) continue;
    if (match.depth == best.depth && positions <= best.keys) continue;
    best = {match.depth, match.page, positions};
  }
  return best;
}

void StateStore::adopt(Id id, std::span<const int32_t> pages, int length) {
  Sequence& s = at(id);
  if (length == 0) return;
  const auto found = snapshots_.find(place_of(pages, length));
  assert(found != snapshots_.end());
  used_.splice(used_.end(), used_, found->second.use);
  copy_state(found->second.slot, s.slot);
  std::ranges::fill(s.bases, length);
  s.first = length;
}

void StateStore::drop_page(int32_t page) {
  auto at = snapshots_.lower_bound({page, 0});
  while (at != snapshots_.end() && at->first.page == page) at = drop(at);
}

void StateStore::drop_kept() {
  while (!snapshots_.empty()) drop(snapshots_.begin());
}

}  // namespace aerie

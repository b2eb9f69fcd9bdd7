#include "kv/kv_cache.h"

#include <algorithm>
#include <cassert>

#include "base/errors.h"
#include "base/system/topology.h"

namespace aerie {
namespace {

constexpr int kPage = kernels::kPagePositions;
// Slots are numbers of 32 bits.
constexpr int64_t kMostPositions = INT32_MAX / kPage * kPage;

int64_t pages_for(int64_t positions) {
  return (positions + kPage - 1) / kPage;
}

kernels::KvLayout layout_of(const ModelConfig& config, int layer, kernels::KvType type) {
  const KvHeads heads = config.kv_of(layer);
  return kernels::layout_of_rank({heads.count, heads.dim, type, config.latent.rank},
                                 config.rank.index, config.rank.of);
}

// Layers before this one that keep states.
int states_before(const ModelConfig& config, int layer) {
  int count = 0;
  for (int i = 0; i < layer; ++i) count += config.is_linear(i) ? 1 : 0;
  return count;
}

bool layer_keeps_kv(const ModelConfig& config, int layer) {
  return !config.is_linear(layer) && config.has_own_kv(layer);
}

// Of a layer with a window.
int64_t places_for(const ModelConfig& config, int64_t pages, const KvCache::Windows& windows) {
  const int window = config.largest_window();
  if (windows.rows == 0 || window == 0) return pages;
  // Of what it keeps, one page for rows that begin another or a copy of one that others read.
  const int64_t most = pages_for(int64_t{window} + windows.behind) + 2;
  return std::min(pages, windows.sequences * most + pages_for(windows.rows));
}

StateStore::Sizes state_sizes(const KvCache::Creation& creation) {
  const KvCache::States& states = creation.states;
  const int64_t records =
      states.loose_rows > 0 ? states.loose_rows : pages_for(creation.positions) * kPage;
  return {creation.sequences, records, states.snapshots};
}

}  // namespace

int64_t KvCache::bytes_needed(const ModelConfig& config, int64_t positions, kernels::KvType type,
                              const Windows& windows) {
  const int64_t pages = pages_for(positions), places = places_for(config, pages, windows);
  int64_t bytes = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    if (!layer_keeps_kv(config, layer)) continue;
    bytes += (config.has_window(layer) ? places : pages) * layout_of(config, layer, type).page();
  }
  return bytes;
}

int64_t KvCache::state_bytes_needed(const ModelConfig& config, int sequences,
                                    const States& states) {
  return StateStore::bytes_needed(config, {sequences, states.loose_rows, states.snapshots});
}

int64_t KvCache::bytes_needed(const ModelConfig& config, const Creation& creation) {
  const Windows windows = creation.planes == Planes::kHere ? creation.windows : Windows{0, 0, 0};
  return bytes_needed(config, creation.positions, creation.type, windows) +
         StateStore::bytes_needed(config, state_sizes(creation));
}

int64_t KvCache::bytes_here(const ModelConfig& config, const Creation& creation) {
  if (creation.planes == Planes::kHere) return bytes_needed(config, creation);
  assert(creation.here <= config.layers);
  int64_t bytes = 0;
  if (const int states = states_before(config, creation.here); states > 0) {
    bytes =
        StateStore::bytes_needed(config, state_sizes(creation)) / config.count_linear() * states;
  }
  for (int layer = 0; layer < creation.here; ++layer) {
    if (!layer_keeps_kv(config, layer)) continue;
    bytes += pages_for(creation.positions) * layout_of(config, layer, creation.type).page();
  }
  return bytes;
}

Expected<KvCache> KvCache::create(const ModelConfig& config, const Creation& creation) {
  const int64_t positions = creation.positions;
  assert(positions > 0 && creation.sequences > 0);
  if (positions > kMostPositions) {
    return invalid_argument("a cache of {} tokens: it may hold {} at most", positions,
                            kMostPositions);
  }
  KvCache cache;
  cache.creation_ = creation;
  const int shapes = config.kv_by_layer.empty() ? 1 : config.layers;
  for (int layer = 0; layer < shapes; ++layer) {
    cache.layouts_.push_back(layout_of(config, layer, creation.type));
  }
  cache.page_count_ = static_cast<int>(pages_for(positions));
  AERIE_RETURN_IF_ERROR(cache.make_windows(config));
  AERIE_RETURN_IF_ERROR(cache.make_planes(config));
  if (config.count_linear() > 0) {
    StateStore::Sizes sizes = state_sizes(creation);
    if (creation.planes == Planes::kElsewhere) sizes.here = states_before(config, creation.here);
    AERIE_ASSIGN_OR_RETURN(cache.states_, StateStore::create(config, sizes));
  }
  cache.sequences_.resize(static_cast<size_t>(creation.sequences));
  for (Sequence& s : cache.sequences_) s.pages.reserve(static_cast<size_t>(cache.page_count_));
  for (int page = cache.page_count_ - 1; page >= 0; --page) cache.free_.push_back(page);
  cache.references_.resize(static_cast<size_t>(cache.page_count_));
  cache.is_kept_.resize(static_cast<size_t>(cache.page_count_));
  return cache;
}

Status KvCache::make_windows(const ModelConfig& config) {
  const int64_t places = places_for(config, page_count_, creation_.windows);
  if (places >= page_count_) return {};
  if (config.count_linear() > 0) {
    return not_supported("a cache of windows and of states");
  }
  for (int layer = 0; layer < config.layers; ++layer) {
    has_window_.push_back(config.has_window(layer));
  }
  windows_.emplace(page_count_, static_cast<int>(places), config.largest_window(),
                   creation_.windows.behind);
  return {};
}

Status KvCache::make_planes(const ModelConfig& config) {
  const bool elsewhere = creation_.planes == Planes::kElsewhere;
  if (elsewhere && windows_) return not_supported("a cache of windows whose planes are elsewhere");
  if (elsewhere) moves_.emplace(positions());
  bytes_ = bytes_needed(config, creation_.positions, creation_.type, creation_.windows);
  const std::vector<MemoryNode> nodes = machine_topology().nodes;
  int state_planes = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    state_planes_.push_back(state_planes);
    keeps_state_.push_back(config.is_linear(layer));
    keeps_kv_.push_back(layer_keeps_kv(config, layer));
    if (config.is_linear(layer)) ++state_planes;
    planes_.emplace_back();
    if ((elsewhere && layer >= creation_.here) || !keeps_kv_.back()) continue;
    const int pages = has_places(layer) ? windows_->places() : page_count_;
    const auto bytes = static_cast<size_t>(pages * layout(layer).page());
    AERIE_ASSIGN_OR_RETURN(planes_.back(), Buffer::allocate(bytes));
    // Which thread reads what depends on the lengths of the sequences.
    Buffer& plane = planes_.back();
    if (nodes.size() > 1) interleave_memory(plane.data(), plane.size(), nodes);
  }
  return {};
}

Expected<KvCache::Id> KvCache::open() {
  if (journal_ != nullptr) journal_->add(KvCall::kOpen);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].open) continue;
    sequences_[i].open = true;
    sequences_[i].committed = 0;
    if (states_) states_->open(static_cast<Id>(i));
    return static_cast<Id>(i);
  }
  return resource_exhausted("all {} sequences of the cache are in use", sequences_.size());
}

// Requires a free page, or one that is kept and no sequence has.
int32_t KvCache::take_page() {
  if (free_.empty()) {
    const int32_t page = prefixes_.evict(references_);
    assert(page >= 0);
    is_kept_[static_cast<size_t>(page)] = false;
    --kept_alone_;
    if (states_) states_->drop_page(page);
    if (windows_) windows_->drop(page);
    references_[static_cast<size_t>(page)] = 0;
    free_.push_back(page);
  }
  const int32_t page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void KvCache::drop_page(int32_t page) {
  const auto at = static_cast<size_t>(page);
  if (--references_[at] == 0) {
    if (windows_) windows_->drop(page);
    free_.push_back(page);
  } else if (references_[at] == 1 && is_kept_[at]) {
    ++kept_alone_;
  }
}

void KvCache::close(Id id) {
  if (journal_ != nullptr) journal_->add(KvCall::kClose, id);
  Sequence& s = sequence(id);
  assert(s.open);
  if (states_) states_->close(id);
  for (; s.first < s.last; ++s.first) windows_->release(s.pages[static_cast<size_t>(s.first)]);
  s.first = s.last = 0;
  for (const int32_t page : s.pages) drop_page(page);
  s.pages.clear();
  s.committed = 0;
  s.open = false;
}

void KvCache::copy_entry(int32_t from, int32_t to) {
  if (moves_) moves_->add(from, to);
  const auto place_of = [&](int32_t slot) {
    return windows_->place(slot / kPage) * kPage + slot % kPage;
  };
  for (int layer = 0; layer < layers(); ++layer) {
    if (plane(layer) == nullptr) continue;
    if (has_places(layer)) {
      kernels::copy_kv(layout(layer), plane(layer), place_of(from), place_of(to));
    } else {
      kernels::copy_kv(layout(layer), plane(layer), from, to);
    }
  }
}

// Room for pages up to `wanted`, and for a copy of one.
Status KvCache::check_room(const Sequence& s, int64_t wanted, int rows, bool copies) const {
  const int64_t copied = copies ? 1 : 0;
  const int64_t missing = std::max<int64_t>(0, wanted - std::ssize(s.pages)) + copied;
  if (missing > static_cast<int64_t>(free_.size()) + kept_alone_) {
    return resource_exhausted(
        "the cache is full: {} positions are taken, {} more were asked for, and {} is all there "
        "is; raise the context size or shorten the input",
        s.committed, rows, positions());
  }
  if (windows_ && std::max<int64_t>(0, wanted - s.last) + copied > windows_->available()) {
    return resource_exhausted(
        "the cache of layers with a window is full: {} positions more were asked for, and all "
        "sequences together have {}; give more memory, or read prompts in smaller pieces",
        rows, int64_t{windows_->places()} * kPage);
  }
  return {};
}

// Requires room for them.
void KvCache::add_pages(Sequence& s, int64_t wanted) {
  while (std::ssize(s.pages) < wanted) s.pages.push_back(take_page());
  if (!windows_) return;
  for (; s.last < wanted; ++s.last) windows_->need(s.pages[static_cast<size_t>(s.last)]);
}

// A copy of the page that is full in part, which others read, too.
void KvCache::own_partial_page(Sequence& s) {
  int32_t& page = s.pages[static_cast<size_t>(s.committed / kPage)];
  const int32_t own = take_page(), old = page;
  // What it is to hold a part of, the sequence sees.
  if (windows_) windows_->need(own);
  for (int32_t offset = 0; offset < s.committed % kPage; ++offset) {
    copy_entry(old * kPage + offset, own * kPage + offset);
  }
  if (windows_) windows_->release(old);
  drop_page(old);
  page = own;
}

Status KvCache::reserve(Id id, int rows, int settled) {
  if (journal_ != nullptr) journal_->add(KvCall::kReserve, id, rows, settled);
  Sequence& s = sequence(id);
  assert(s.open && rows >= 0 && settled <= rows);
  const int64_t wanted = pages_for(int64_t{s.committed} + rows);
  // Those behind the page that is full in part are never shared.
  const auto partial = static_cast<size_t>(s.committed / kPage);
  const bool copies = rows > 0 && partial < s.pages.size() && shared(s.pages[partial]);
  AERIE_RETURN_IF_ERROR(check_room(s, wanted, rows, copies));
  if (states_) AERIE_RETURN_IF_ERROR(states_->reserve(id, s.committed, rows, settled));
  if (copies) own_partial_page(s);
  add_pages(s, wanted);
  return {};
}

// The sequence no longer needs what no row of it will see.
void KvCache::slide(Sequence& s) {
  if (!windows_) return;
  const int first = std::min(windows_->first_kept(s.committed), s.last);
  for (; s.first < first; ++s.first) windows_->release(s.pages[static_cast<size_t>(s.first)]);
}

// Of the pages of a beginning: all that is seen of it, and what is there of those to be kept with
// it.
int KvCache::first_needed(std::span<const int32_t> pages, int length) const {
  int first = windows_->first_seen(length);
  const int least = windows_->first_kept(length);
  while (first > least && windows_->has(pages[static_cast<size_t>(first) - 1])) --first;
  return first;
}

bool KvCache::sees_all(std::span<const int32_t> pages, int length) const {
  for (int64_t i = windows_->first_seen(length); i < pages_for(length); ++i) {
    if (!windows_->has(pages[static_cast<size_t>(i)])) return false;
  }
  return true;
}

// The sequence, of which that many entries are left, needs what belongs to them and no more.
// Requires sees_all().
void KvCache::move_window(Sequence& s, int length) {
  const int first = first_needed(s.pages, length), last = static_cast<int>(pages_for(length));
  for (int i = first; i < last; ++i) windows_->need(s.pages[static_cast<size_t>(i)]);
  for (; s.first < s.last; ++s.first) windows_->release(s.pages[static_cast<size_t>(s.first)]);
  s.first = first;
  s.last = last;
}

bool KvCache::can_begin_at(Id id, int length) const {
  return windows_ && length <= committed(id) && sees_all(pages(id), length);
}

int32_t KvCache::claim_snapshot(Id id, int length) {
  if (!states_) return -1;
  if (journal_ != nullptr) journal_->add(KvCall::kClaimSnapshot, id, length);
  return states_->claim(id, length);
}

void KvCache::value_beginning(Id id, int length) {
  if (journal_ != nullptr) journal_->add(KvCall::kValueBeginning, id, length);
  mark_valued(id, length);
}

void KvCache::mark_valued(Id id, int length) {
  if (!windows_) return;
  const std::vector<int32_t>& pages = sequence(id).pages;
  for (int64_t i = windows_->first_kept(length); i < pages_for(length); ++i) {
    windows_->value(pages[static_cast<size_t>(i)]);
  }
}

// How much of these keys the sequence can share with those who kept it. All, unless its own page
// has the place that the other lacks, and is shared already.
size_t KvCache::most_shared(const Sequence& s, std::span<const PrefixKey> keys,
                            std::string_view tenant) const {
  prefixes_.matches(tenant, keys, matches_);
  size_t most = keys.size();
  for (const PrefixTree::Match& match : matches_) {
    const int32_t own = s.pages[static_cast<size_t>(match.depth)];
    const bool needs = s.first <= match.depth && match.depth < s.last;
    if (match.page == own || match.keys < kPage || windows_->has(match.page)) continue;
    if (windows_->users(own) > (needs ? 1 : 0)) {
      most = std::min(most, static_cast<size_t>(match.depth) * kPage);
    }
  }
  return most;
}

// The sequence gives up its page for one that holds the same.
void KvCache::share_page(Sequence& s, size_t index, int32_t page) {
  int32_t& own = s.pages[index];
  const auto at = static_cast<int>(index);
  if (windows_ && !windows_->has(page)) {
    windows_->hand_over(own, page);
  } else if (windows_) {
    if (windows_->is_valued(own)) windows_->value(page);
    if (s.first <= at && at < s.last) {
      windows_->need(page);
      windows_->release(own);
    }
  }
  if (references_[static_cast<size_t>(page)]++ == 1) --kept_alone_;
  drop_page(own);
  own = page;
}

void KvCache::keep(Id id, std::span<const PrefixKey> keys, bool tail, std::string_view tenant) {
  if (journal_ != nullptr) journal_->add_keys(KvCall::kKeep, id, keys, tail, tenant);
  Sequence& s = sequence(id);
  assert(keys.size() <= static_cast<size_t>(s.committed));
  if (windows_) {
    mark_valued(id, static_cast<int>(keys.size()));
    keys = keys.first(most_shared(s, keys, tenant));
  }
  const size_t full = keys.size() / kPage;
  if (!tail) keys = keys.first(full * kPage);
  prefixes_.add(tenant, keys, s.pages, found_);
  for (size_t i = 0; i < found_.size(); ++i) {
    const auto held = static_cast<size_t>(found_[i]);
    if (found_[i] == s.pages[i]) {
      if (!is_kept_[held]) ++references_[held];
      is_kept_[held] = true;
    } else if (i < full) {
      // So that whoever reads a page reads those before it, too: a kept page that no sequence has
      // can then be taken back, whatever hangs on it.
      share_page(s, i, found_[i]);
    }
  }
  if (!states_) return;
  const auto length = static_cast<int>(keys.size());
  states_->keep(id, found_, length, length == s.committed);
}

// Of what matches_ has, the longest beginning that can be gone on from; a depth of -1: there is
// none.
PrefixTree::Match KvCache::last_beginning() const {
  if (states_) return states_->kept(matches_);
  // No two pages hold the same in the same place, so that full ones are the way there.
  path_.clear();
  for (const PrefixTree::Match& match : matches_) {
    if (match.keys == kPage) path_.push_back(match.page);
  }
  PrefixTree::Match best = {-1, -1, 0};
  int longest = 0;
  for (const PrefixTree::Match& match : matches_) {
    const int length = match.depth * kPage + match.keys;
    if (length <= longest || !windows_->has(match.page)) continue;
    const auto before = std::span(path_).first(static_cast<size_t>(match.depth));
    bool whole = true;
    for (int i = windows_->first_seen(length); i < match.depth; ++i) {
      whole = whole && windows_->has(before[static_cast<size_t>(i)]);
    }
    if (!whole) continue;
    longest = length;
    best = match;
  }
  return best;
}

int KvCache::kept(std::span<const PrefixKey> keys, std::string_view tenant) const {
  if (begins_anywhere()) return kept_pages(keys, tenant);
  prefixes_.matches(tenant, keys, matches_);
  const PrefixTree::Match last = last_beginning();
  return std::max(0, last.depth * kPage + last.keys);
}

int KvCache::adopt(Id id, std::span<const PrefixKey> keys, std::string_view tenant) {
  if (journal_ != nullptr) journal_->add_keys(KvCall::kAdopt, id, keys, true, tenant);
  Sequence& s = sequence(id);
  assert(s.open && s.pages.empty());
  s.committed = prefixes_.find(tenant, keys, found_);
  if (!begins_anywhere()) {
    prefixes_.matches(tenant, keys, matches_);
    const PrefixTree::Match last = last_beginning();
    s.committed = std::max(0, last.depth * kPage + last.keys);
    found_.resize(static_cast<size_t>(last.depth + 1));
    if (last.depth >= 0) found_.back() = last.page;
    if (states_) states_->adopt(id, found_, s.committed);
  }
  for (const int32_t page : found_) {
    if (references_[static_cast<size_t>(page)]++ == 1) --kept_alone_;
    s.pages.push_back(page);
  }
  if (windows_) move_window(s, s.committed);
  return s.committed;
}

void KvCache::drop_kept() {
  if (journal_ != nullptr) journal_->add(KvCall::kDropKept);
  for (const int32_t page : prefixes_.pages()) {
    const auto at = static_cast<size_t>(page);
    is_kept_[at] = false;
    if (--references_[at] > 0) continue;
    if (windows_) windows_->drop(page);
    --kept_alone_;
    free_.push_back(page);
  }
  prefixes_ = PrefixTree();
  if (states_) states_->drop_kept();
}

int32_t KvCache::slot(Id id, int entry) const {
  const Sequence& s = sequence(id);
  return slot_at(s, s.committed + entry);
}

void KvCache::commit(Id id, std::span<const int32_t> path) {
  if (journal_ != nullptr) journal_->add_path(KvCall::kCommit, id, path);
  Sequence& s = sequence(id);
  for (size_t i = 0; i < path.size(); ++i) {
    const int to = static_cast<int>(i);
    assert(path[i] >= to && (i == 0 || path[i] > path[i - 1]));
    if (path[i] == to) continue;
    const int32_t from_slot = slot_at(s, s.committed + path[i]);
    const int32_t to_slot = slot_at(s, s.committed + to);
    copy_entry(from_slot, to_slot);
  }
  if (states_) states_->commit(id, s.committed, path);
  s.committed += static_cast<int>(path.size());
  slide(s);
}

void KvCache::commit_first(Id id, int count) {
  if (journal_ != nullptr) journal_->add(KvCall::kCommitFirst, id, count);
  Sequence& s = sequence(id);
  assert(count >= 0 && pages_for(s.committed + count) <= std::ssize(s.pages));
  s.committed += count;
  if (states_ && count > 0) states_->commit_first(id);
  slide(s);
}

Status KvCache::assume(Id id, int length) {
  if (journal_ != nullptr) journal_->add(KvCall::kAssume, id, length);
  Sequence& s = sequence(id);
  assert(length >= 0);
  s.committed = 0;
  if (windows_) {
    move_window(s, 0);
    s.first = s.last = windows_->first_kept(length);
  }
  if (Status status = check_room(s, pages_for(length), length, false); !status.ok()) {
    s.first = s.last = 0;
    return status;
  }
  add_pages(s, pages_for(length));
  s.committed = length;
  if (states_) states_->assume(id, length);
  return {};
}

int KvCache::truncate(Id id, int length) {
  if (journal_ != nullptr) journal_->add(KvCall::kTruncate, id, length);
  Sequence& s = sequence(id);
  assert(length >= 0 && length <= s.committed);
  if (windows_) {
    while (!sees_all(s.pages, length)) length = std::max(0, (length - 1) / kPage * kPage);
    move_window(s, length);
  }
  if (states_) length = states_->truncate(id, length);
  s.committed = length;
  // What others read is not written to, and pages that hang on others are held with them.
  const auto beyond = s.pages.begin() + static_cast<ptrdiff_t>(pages_for(length));
  s.pages.erase(std::remove_if(beyond, s.pages.end(),
                               [&](int32_t page) {
                                 const bool drop = shared(page);
                                 if (drop) drop_page(page);
                                 return drop;
                               }),
                s.pages.end());
  return length;
}

}  // namespace aerie

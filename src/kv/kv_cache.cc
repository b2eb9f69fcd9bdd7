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

kernels::KvLayout layout_of(const ModelConfig& config, kernels::KvType type) {
  return {config.kv_heads, config.head_dim, type, config.latent.rank};
}

}  // namespace

int64_t KvCache::bytes_needed(const ModelConfig& config, int64_t positions, kernels::KvType type) {
  return pages_for(positions) * layout_of(config, type).page() *
         (config.layers - config.count_linear());
}

int64_t KvCache::state_bytes_needed(const ModelConfig& config, int sequences,
                                    const States& states) {
  return StateStore::bytes_needed(config, {sequences, states.loose_rows, states.snapshots});
}

Expected<KvCache> KvCache::create(const ModelConfig& config, int64_t positions, int sequences,
                                  kernels::KvType type, const States& states) {
  assert(positions > 0 && sequences > 0);
  if (positions > kMostPositions) {
    return invalid_argument("a cache of {} tokens: it may hold {} at most", positions,
                            kMostPositions);
  }
  KvCache cache;
  cache.layout_ = layout_of(config, type);
  cache.page_count_ = static_cast<int>(pages_for(positions));
  const std::vector<MemoryNode> nodes = machine_topology().nodes;
  int state_planes = 0;
  for (int layer = 0; layer < config.layers; ++layer) {
    cache.state_planes_.push_back(state_planes);
    if (config.is_linear(layer)) {
      ++state_planes;
      cache.planes_.emplace_back();
      continue;
    }
    const auto bytes = static_cast<size_t>(cache.page_count_ * cache.layout_.page());
    AERIE_ASSIGN_OR_RETURN(Buffer plane, Buffer::allocate(bytes));
    // Which thread reads what depends on the lengths of the sequences.
    if (nodes.size() > 1) interleave_memory(plane.data(), plane.size(), nodes);
    cache.planes_.push_back(std::move(plane));
  }
  if (state_planes > 0) {
    const int64_t rows = states.loose_rows > 0 ? states.loose_rows : cache.positions();
    AERIE_ASSIGN_OR_RETURN(cache.states_,
                           StateStore::create(config, {sequences, rows, states.snapshots}));
  }
  cache.sequences_.resize(static_cast<size_t>(sequences));
  for (Sequence& s : cache.sequences_) s.pages.reserve(static_cast<size_t>(cache.page_count_));
  for (int page = cache.page_count_ - 1; page >= 0; --page) cache.free_.push_back(page);
  cache.references_.resize(static_cast<size_t>(cache.page_count_));
  cache.is_kept_.resize(static_cast<size_t>(cache.page_count_));
  return cache;
}

Expected<KvCache::Id> KvCache::open() {
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
    free_.push_back(page);
  } else if (references_[at] == 1 && is_kept_[at]) {
    ++kept_alone_;
  }
}

void KvCache::close(Id id) {
  Sequence& s = sequence(id);
  assert(s.open);
  if (states_) states_->close(id);
  for (const int32_t page : s.pages) drop_page(page);
  s.pages.clear();
  s.committed = 0;
  s.open = false;
}

void KvCache::copy_entry(int32_t from, int32_t to) {
  for (int layer = 0; layer < layers(); ++layer) {
    if (plane(layer) != nullptr) kernels::copy_kv(layout_, plane(layer), from, to);
  }
}

Status KvCache::reserve(Id id, int rows, int settled) {
  Sequence& s = sequence(id);
  assert(s.open && rows >= 0 && settled <= rows);
  const int64_t wanted = pages_for(int64_t{s.committed} + rows);
  const auto had = static_cast<int64_t>(s.pages.size());
  // The page that is full in part, if others read it, too. Those behind it are never shared.
  const auto partial = static_cast<size_t>(s.committed / kPage);
  const bool copies = rows > 0 && partial < s.pages.size() && shared(s.pages[partial]);
  const int64_t missing = std::max<int64_t>(0, wanted - had) + (copies ? 1 : 0);
  if (missing > static_cast<int64_t>(free_.size()) + kept_alone_) {
    return resource_exhausted(
        "the cache is full: {} positions are taken, {} more were asked for, and {} is all there "
        "is; raise the context size or shorten the input",
        s.committed, rows, positions());
  }
  if (states_) AERIE_RETURN_IF_ERROR(states_->reserve(id, s.committed, rows, settled));
  if (copies) {
    const int32_t own = take_page(), old = s.pages[partial];
    for (int32_t offset = 0; offset < s.committed % kPage; ++offset) {
      copy_entry(old * kPage + offset, own * kPage + offset);
    }
    drop_page(old);
    s.pages[partial] = own;
  }
  while (static_cast<int64_t>(s.pages.size()) < wanted) s.pages.push_back(take_page());
  return {};
}

void KvCache::keep(Id id, std::span<const PrefixKey> keys, bool tail, std::string_view tenant) {
  Sequence& s = sequence(id);
  assert(keys.size() <= static_cast<size_t>(s.committed));
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
      if (references_[held]++ == 1) --kept_alone_;
      drop_page(s.pages[i]);
      s.pages[i] = found_[i];
    }
  }
  if (!states_) return;
  const auto length = static_cast<int>(keys.size());
  states_->keep(id, found_, length, length == s.committed);
}

int KvCache::kept(std::span<const PrefixKey> keys, std::string_view tenant) const {
  if (!states_) return kept_pages(keys, tenant);
  prefixes_.matches(tenant, keys, matches_);
  const PrefixTree::Match last = states_->kept(matches_);
  return std::max(0, last.depth * kPage + last.keys);
}

int KvCache::adopt(Id id, std::span<const PrefixKey> keys, std::string_view tenant) {
  Sequence& s = sequence(id);
  assert(s.open && s.pages.empty());
  s.committed = prefixes_.find(tenant, keys, found_);
  if (states_) {
    prefixes_.matches(tenant, keys, matches_);
    const PrefixTree::Match last = states_->kept(matches_);
    s.committed = std::max(0, last.depth * kPage + last.keys);
    found_.resize(static_cast<size_t>(last.depth + 1));
    if (last.depth >= 0) found_.back() = last.page;
    states_->adopt(id, found_, s.committed);
  }
  for (const int32_t page : found_) {
    if (references_[static_cast<size_t>(page)]++ == 1) --kept_alone_;
    s.pages.push_back(page);
  }
  return s.committed;
}

void KvCache::drop_kept() {
  for (const int32_t page : prefixes_.pages()) {
    const auto at = static_cast<size_t>(page);
    is_kept_[at] = false;
    if (--references_[at] > 0) continue;
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
}

void KvCache::commit_first(Id id, int count) {
  Sequence& s = sequence(id);
  assert(count >= 0 && pages_for(s.committed + count) <= static_cast<int64_t>(s.pages.size()));
  s.committed += count;
  if (states_ && count > 0) states_->commit_first(id);
}

void KvCache::assume(Id id, int length) {
  Sequence& s = sequence(id);
  assert(length >= 0 && pages_for(length) <= static_cast<int64_t>(s.pages.size()));
  s.committed = length;
  if (states_) states_->assume(id, length);
}

int KvCache::truncate(Id id, int length) {
  Sequence& s = sequence(id);
  assert(length >= 0 && length <= s.committed);
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

#include "kv/kv_cache.h"

#include <cassert>

#include "base/memory_nodes.h"

namespace aerie {
namespace {

constexpr int kPage = kernels::kPagePositions;

int64_t pages_for(int64_t positions) {
  return (positions + kPage - 1) / kPage;
}

kernels::KvLayout layout_of(const ModelConfig& config, kernels::KvType type) {
  return {config.kv_heads, config.head_dim, type};
}

}  // namespace

int64_t KvCache::bytes_needed(const ModelConfig& config, int64_t positions, kernels::KvType type) {
  return pages_for(positions) * layout_of(config, type).page() * config.layers;
}

Expected<KvCache> KvCache::create(const ModelConfig& config, int64_t positions, int sequences,
                                  kernels::KvType type) {
  assert(positions > 0 && sequences > 0);
  KvCache cache;
  cache.layout_ = layout_of(config, type);
  cache.page_count_ = static_cast<int>(pages_for(positions));
  const std::vector<MemoryNode> nodes = memory_nodes();
  for (int layer = 0; layer < config.layers; ++layer) {
    const auto bytes = static_cast<size_t>(cache.page_count_ * cache.layout_.page());
    AERIE_ASSIGN_OR_RETURN(Buffer plane, Buffer::allocate(bytes));
    // Which thread reads what depends on the lengths of the sequences.
    if (nodes.size() > 1) interleave_memory(plane.data(), plane.size(), nodes);
    cache.planes_.push_back(std::move(plane));
  }
  cache.sequences_.resize(static_cast<size_t>(sequences));
  for (Sequence& s : cache.sequences_) s.pages.reserve(static_cast<size_t>(cache.page_count_));
  for (int page = cache.page_count_ - 1; page >= 0; --page) cache.free_.push_back(page);
  return cache;
}

Expected<KvCache::Id> KvCache::open() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].open) continue;
    sequences_[i].open = true;
    sequences_[i].committed = 0;
    return static_cast<Id>(i);
  }
  return Status(StatusCode::kResourceExhausted,
                "all " + std::to_string(sequences_.size()) + " sequences of the cache are in use");
}

void KvCache::close(Id id) {
  Sequence& s = sequence(id);
  assert(s.open);
  for (const int32_t page : s.pages) free_.push_back(page);
  s.pages.clear();
  s.committed = 0;
  s.open = false;
}

Status KvCache::reserve(Id id, int rows) {
  Sequence& s = sequence(id);
  assert(s.open && rows >= 0);
  const int64_t wanted = pages_for(int64_t{s.committed} + rows);
  const int64_t missing = wanted - static_cast<int64_t>(s.pages.size());
  if (missing > static_cast<int64_t>(free_.size())) {
    return {StatusCode::kResourceExhausted,
            "the cache is full: " + std::to_string(s.committed) + " positions are taken, " +
                std::to_string(rows) + " more were asked for, and " + std::to_string(positions()) +
                " is all there is; raise the context size or shorten the input"};
  }
  for (int64_t i = 0; i < missing; ++i) {
    s.pages.push_back(free_.back());
    free_.pop_back();
  }
  return {};
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
    for (int layer = 0; layer < layers(); ++layer) {
      kernels::copy_kv(layout_, plane(layer), from_slot, to_slot);
    }
  }
  s.committed += static_cast<int>(path.size());
}

void KvCache::commit_first(Id id, int count) {
  Sequence& s = sequence(id);
  assert(count >= 0 && pages_for(s.committed + count) <= static_cast<int64_t>(s.pages.size()));
  s.committed += count;
}

void KvCache::truncate(Id id, int length) {
  Sequence& s = sequence(id);
  assert(length >= 0 && length <= s.committed);
  s.committed = length;
}

}  // namespace aerie

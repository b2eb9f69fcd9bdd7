#include "kernels/cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <cassert>

namespace aerie::kernels {
namespace {

constexpr int kPagesPerChunk = kAttentionChunk / kPagePositions;
constexpr int kMaxPartial = kMaxLongKey + kPartialTail;

// A range of positions, chunks or heads.
struct Range {
  int begin, end;
};

// Items differ in length and cores in speed, so each thread takes the next one when it is free.
template <typename Fn>
void for_items(ThreadPool& pool, int64_t items, int threads, const Fn& fn) {
  std::atomic<int64_t> next{0};
  pool.parallel_for(std::min<int64_t>(items, threads), 1, [&](int64_t, int64_t, int) {
    for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < items;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      fn(i);
    }
  });
}

class Attention {
 public:
  Attention(const CpuOps& ops, const AttentionArgs& args, int threads)
      : ops_(ops),
        args_(args),
        workspace_(*args.workspace),
        group_heads_(args.heads / args.layout.kv_heads),
        threads_(threads) {}

  void run(ThreadPool& pool) {
    // Another thread is not worth its wake-up.
    if (products() < kFewProducts) threads_ = 1;
    make_blocks();
    // Few rows over a long context would leave threads idle: then chunks are shares of their own.
    // The partial results and the order in which they merge are the same either way.
    const bool split = threads_ > 1 && most_chunks_ > 1 &&
                       rows() <= AttentionWorkspace::kSplitRows &&
                       items() < kItemsPerThread * threads_;
    if (split) {
      for_items(pool, items() * most_chunks_, threads_, [&](int64_t i) { split_item(i); });
      pool.parallel_for(rows() * layout().kv_heads, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) merge_split(i);
      });
    } else {
      for_items(pool, items(), threads_, [&](int64_t i) { whole_item(i); });
    }
  }

 private:
  // Below so many items the threads would end at different times.
  static constexpr int64_t kItemsPerThread = 4;
  static constexpr int64_t kFewProducts = 1 << 16;

  struct Block {
    int begin, end;  // rows
    int kv_head;
    Range chunks;  // that any row sees
  };
  struct Place {
    int64_t kv_head, chunk;
  };

  const KvLayout& layout() const { return args_.layout; }
  int value_dim() const { return layout().value_dim(); }
  int64_t rows() const { return static_cast<int64_t>(args_.rows.size()); }
  int64_t blocks() const { return static_cast<int64_t>(workspace_.blocks.size()) - 1; }
  // Of elements of queries and keys.
  int64_t products() const {
    int64_t positions = 0;
    for (const AttentionRow& r : args_.rows) positions += r.position + 1 - first_position(r);
    return positions * args_.heads * layout().head_dim;
  }
  // Blocks come last, so that those of a head or of a chunk find its keys and values in the cache.
  int64_t items() const { return blocks() * layout().kv_heads; }

  // Rows of a block share their keys as long as its queries fit one share.
  void make_blocks() {
    int most_rows = std::max(1, kMaxChunkQueries / group_heads_);
    make_blocks_of(most_rows);
    for (int64_t b = 0; b < blocks(); ++b) {
      const Range chunks = block_of(b, 0).chunks;
      most_chunks_ = std::max(most_chunks_, chunks.end - chunks.begin);
      assert(chunks.end <= workspace_.max_chunks);
    }
    // Reading keys twice costs less than threads that have nothing to do, where no chunks can be
    // shared out.
    while (most_chunks_ == 1 && most_rows > 1 && items() < kItemsPerThread * threads_ &&
           items() % threads_ != 0) {
      most_rows = (most_rows + 1) / 2;
      make_blocks_of(most_rows);
    }
  }

  void make_blocks_of(int most_rows) {
    std::vector<int32_t>& starts = workspace_.blocks;
    starts.clear();
    for (int32_t r = 0; r < rows(); ++r) {
      const bool fits = !starts.empty() && r - starts.back() < most_rows &&
                        row(starts.back()).group == row(r).group;
      if (!fits) starts.push_back(r);
    }
    starts.push_back(static_cast<int32_t>(rows()));
  }

  Block block_of(int64_t index, int64_t kv_head) const {
    const auto b = static_cast<size_t>(index);
    Block block = {workspace_.blocks[b], workspace_.blocks[b + 1], static_cast<int>(kv_head), {}};
    block.chunks = chunks_of(row(block.begin));
    for (int r = block.begin + 1; r < block.end; ++r) {
      const Range chunks = chunks_of(row(r));
      block.chunks.begin = std::min(block.chunks.begin, chunks.begin);
      block.chunks.end = std::max(block.chunks.end, chunks.end);
    }
    return block;
  }

  const AttentionRow& row(int r) const { return args_.rows[static_cast<size_t>(r)]; }

  int first_position(const AttentionRow& row) const {
    return args_.window > 0 ? std::max(0, row.position - args_.window + 1) : 0;
  }
  Range chunks_of(const AttentionRow& row) const {
    return {first_position(row) / kAttentionChunk, row.position / kAttentionChunk + 1};
  }
  bool sees(const AttentionRow& row, int chunk) const {
    const Range chunks = chunks_of(row);
    return chunks.begin <= chunk && chunk < chunks.end;
  }
  // Of the positions of a chunk, counted from its start, those that the row sees.
  Range seen_of(const AttentionRow& row, int chunk) const {
    const int start = chunk * kAttentionChunk;
    return {std::max(0, first_position(row) - start),
            std::min(kAttentionChunk, row.position + 1 - start)};
  }

  float* split_partial(int64_t row_head, int chunk) const {
    float* base = const_cast<float*>(workspace_.partials.as<float>().data());
    return base + (row_head * workspace_.max_chunks + chunk) * workspace_.partial_stride;
  }
  int64_t row_head(int r, int kv_head, int h) const {
    return int64_t{r} * args_.heads + kv_head * group_heads_ + h;
  }

  const float* sinks_of(int64_t row_head) const {
    return args_.sinks != nullptr ? args_.sinks + row_head % args_.heads : nullptr;
  }

  // More query heads than a share takes only happens in blocks of one row.
  template <typename Fn>
  void for_heads(const Fn& fn) const {
    for (int from = 0; from < group_heads_; from += kMaxChunkQueries) {
      fn(Range{from, std::min(group_heads_, from + kMaxChunkQueries)});
    }
  }

  void split_item(int64_t item) {
    const int64_t place = item / blocks();
    const Block block = block_of(item % blocks(), place / most_chunks_);
    const auto chunk_of = [&](int64_t at) {
      return block.chunks.begin + static_cast<int>(at % most_chunks_);
    };
    const int chunk = chunk_of(place);
    if (chunk >= block.chunks.end) return;
    const int64_t later = (item + threads_) / blocks();
    for_heads([&](Range heads) {
      ChunkShare share = share_of(block);
      point_at_next(block, {later / most_chunks_, chunk_of(later)}, share);
      run_chunk(share, block, chunk, heads,
                [&](int r, int h) { return split_partial(row_head(r, block.kv_head, h), chunk); });
    });
  }

  // `index` counts the key/value heads of all rows.
  void merge_split(int64_t index) {
    const Range chunks = chunks_of(row(static_cast<int>(index / layout().kv_heads)));
    const int64_t head = index * group_heads_;
    const int64_t stride = workspace_.max_chunks * workspace_.partial_stride;
    float* first = split_partial(head, chunks.begin);
    for (int c = chunks.begin + 1; c < chunks.end; ++c) {
      ops_.attention_merge(first, split_partial(head, c), group_heads_, stride, value_dim());
    }
    ops_.attention_finish(first, sinks_of(head), args_.out + head * value_dim(), group_heads_,
                          stride, value_dim());
  }

  void whole_item(int64_t item) {
    // The later a block, the more it sees: the longest items come first.
    const Block block = block_of(blocks() - 1 - item % blocks(), item / blocks());
    const int64_t next_head = (item + threads_) / blocks();
    for_heads([&](Range heads) { whole_heads(block, heads, next_head); });
  }

  void whole_heads(const Block& block, Range heads, int64_t next_head) {
    alignas(64) float sums[kMaxChunkQueries * kMaxPartial];
    alignas(64) float news[kMaxChunkQueries * kMaxPartial];
    const int64_t stride = workspace_.partial_stride;
    const int count = heads.end - heads.begin;
    const auto offset = [&](int r, int h) {
      return (int64_t{r - block.begin} * count + (h - heads.begin)) * stride;
    };
    ChunkShare share = share_of(block);
    for (int c = block.chunks.begin; c < block.chunks.end; ++c) {
      const bool last = c + 1 == block.chunks.end;
      point_at_next(
          block, last ? Place{next_head, block.chunks.begin} : Place{block.kv_head, c + 1}, share);
      run_chunk(share, block, c, heads, [&](int r, int h) {
        return (c == chunks_of(row(r)).begin ? sums : news) + offset(r, h);
      });
      for (int r = block.begin; r < block.end; ++r) {
        if (!sees(row(r), c) || c == chunks_of(row(r)).begin) continue;
        const int64_t at = offset(r, heads.begin);
        ops_.attention_merge(sums + at, news + at, count, stride, value_dim());
      }
    }
    for (int r = block.begin; r < block.end; ++r) {
      const int64_t head = row_head(r, block.kv_head, heads.begin);
      ops_.attention_finish(sums + offset(r, heads.begin), sinks_of(head),
                            args_.out + head * value_dim(), count, stride, value_dim());
    }
  }

  ChunkShare share_of(const Block& block) const {
    ChunkShare share;
    share.layout = layout();
    share.kv = args_.kv;
    share.kv_head = block.kv_head;
    share.scale = args_.scale;
    share.soft_cap = args_.soft_cap;
    return share;
  }

  // The partial results of some heads of the block's rows that see the chunk.
  template <typename PartialOf>
  void run_chunk(ChunkShare& share, const Block& block, int chunk, Range heads,
                 const PartialOf& partial_of) const {
    share.queries = 0;
    std::fill(std::begin(share.keys), std::end(share.keys), nullptr);
    for (int r = block.begin; r < block.end; ++r) {
      if (!sees(row(r), chunk)) continue;
      ChunkQuery query = query_of(row(r), chunk);
      point_at_pages(row(r), chunk, {query.begin, query.own}, share);
      for (int h = heads.begin; h < heads.end; ++h) {
        query.q = args_.q + row_head(r, block.kv_head, h) * layout().head_dim;
        query.partial = partial_of(r, h);
        share.query[share.queries++] = query;
      }
    }
    if (share.queries > 0) ops_.attention_chunk(share);
  }

  // What all heads of a row have in common.
  ChunkQuery query_of(const AttentionRow& r, int chunk) const {
    const int start = chunk * kAttentionChunk;
    const Range seen = seen_of(r, chunk);
    ChunkQuery query = {};
    query.begin = seen.begin;
    query.end = seen.end;
    query.own = seen.end;
    if (!r.linear && r.committed < start + seen.end) {
      query.own = std::max(seen.begin, r.committed - start);
      query.slots = r.tail + (start + query.own - r.committed);
    }
    return query;
  }

  // Pages of which the row sees nothing are not looked up: they may not exist.
  void point_at_pages(const AttentionRow& r, int chunk, Range seen, ChunkShare& share) const {
    if (seen.begin >= seen.end) return;
    for (int i = seen.begin / kPagePositions; i * kPagePositions < seen.end; ++i) {
      if (share.keys[i] != nullptr) continue;
      const int32_t page = r.pages[chunk * kPagesPerChunk + i];
      share.keys[i] = args_.kv + layout().keys(page, share.kv_head);
      share.values[i] = args_.kv + layout().values(page, share.kv_head);
    }
  }

  // What this thread will read next, if threads take turns. Only a hint: pages that may not exist
  // are left out.
  void point_at_next(const Block& block, Place place, ChunkShare& share) const {
    const AttentionRow& last = row(block.end - 1);
    const bool known = place.kv_head < layout().kv_heads;
    for (int i = 0; i < kPagesPerChunk; ++i) {
      const int64_t page = place.chunk * kPagesPerChunk + i;
      const bool exists = known && page * kPagePositions < last.committed &&
                          (page + 1) * kPagePositions > first_position(last);
      share.next[i] =
          exists ? args_.kv + layout().keys(last.pages[page], static_cast<int>(place.kv_head))
                 : nullptr;
    }
  }

  const CpuOps& ops_;
  const AttentionArgs& args_;
  AttentionWorkspace& workspace_;
  int group_heads_;
  int threads_;
  int most_chunks_ = 1;  // that any block sees
};

}  // namespace

void run_attention(ThreadPool& pool, const CpuOps& ops, const AttentionArgs& args) {
  [[maybe_unused]] const KvLayout& layout = args.layout;
  assert(layout.head_dim % 16 == 0 && layout.value_prefix % 16 == 0);
  assert(layout.head_dim <= (layout.value_prefix > 0 ? kMaxLongKey : kMaxHeadDim));
  assert(layout.value_prefix == 0 || layout.value_prefix < layout.head_dim);
  if (args.rows.empty()) return;
  Attention(ops, args, pool.threads()).run(pool);
}

}  // namespace aerie::kernels

#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace aerie::kernels {
namespace {

constexpr int kPagesPerChunk = kAttentionChunk / kPagePositions;
constexpr int kMaxPartial = kMaxHeadDim + kPartialTail;

// A range of positions or of chunks.
struct Range {
  int begin, end;
};

// Whether the row finds all that it sees of the chunk through its page table.
bool reads_pages(const AttentionRow& row, int chunk) {
  return row.linear || (chunk + 1) * kAttentionChunk <= row.committed;
}

class Attention {
 public:
  Attention(const CpuOps& ops, const AttentionArgs& args)
      : ops_(ops),
        args_(args),
        workspace_(*args.workspace),
        group_heads_(args.heads / args.layout.kv_heads) {}

  void run(ThreadPool& pool) {
    make_blocks();
    const int64_t items = (static_cast<int64_t>(workspace_.blocks.size()) - 1) * layout().kv_heads;
    int most = 1;  // chunks that any block sees
    for (int64_t i = 0; i < items; i += layout().kv_heads) {
      const Range chunks = block_of(i).chunks;
      most = std::max(most, chunks.end - chunks.begin);
      assert(chunks.end <= workspace_.max_chunks);
    }
    // Few rows over a long context would leave threads idle: then chunks are shares of their own.
    // The partial results and the order in which they merge are the same either way.
    if (most > 1 && rows() <= AttentionWorkspace::kSplitRows) {
      pool.parallel_for(items * most, 1, [&](int64_t begin, int64_t end, int thread) {
        for (int64_t i = begin; i < end; ++i) {
          split_item(block_of(i / most), static_cast<int>(i % most), thread);
        }
      });
      pool.parallel_for(rows() * args_.heads, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) merge_split(i);
      });
    } else {
      pool.parallel_for(items, 1, [&](int64_t begin, int64_t end, int thread) {
        for (int64_t i = begin; i < end; ++i) whole_item(block_of(i), thread);
      });
    }
  }

 private:
  struct Block {
    int begin, end;  // rows
    int kv_head;
    Range chunks;  // that any row sees
  };

  const KvLayout& layout() const { return args_.layout; }
  int64_t rows() const { return static_cast<int64_t>(args_.rows.size()); }

  // Rows of a block share their keys as long as its queries fit one share.
  void make_blocks() {
    const int most = std::max(1, kMaxChunkQueries / group_heads_);
    std::vector<int32_t>& starts = workspace_.blocks;
    starts.clear();
    for (int32_t r = 0; r < rows(); ++r) {
      const bool fits = !starts.empty() && r - starts.back() < most &&
                        args_.rows[static_cast<size_t>(starts.back())].group ==
                            args_.rows[static_cast<size_t>(r)].group;
      if (!fits) starts.push_back(r);
    }
    starts.push_back(static_cast<int32_t>(rows()));
  }

  Block block_of(int64_t item) const {
    const auto b = static_cast<size_t>(item / layout().kv_heads);
    Block block = {workspace_.blocks[b],
                   workspace_.blocks[b + 1],
                   static_cast<int>(item % layout().kv_heads),
                   {}};
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

  // `index` counts from the first chunk that the block sees.
  void split_item(const Block& block, int index, int thread) {
    const int chunk = block.chunks.begin + index;
    if (chunk >= block.chunks.end) return;
    run_chunk(block, chunk, thread,
              [&](int r, int h) { return split_partial(row_head(r, block.kv_head, h), chunk); });
  }

  void merge_split(int64_t index) {
    const Range chunks = chunks_of(row(static_cast<int>(index / args_.heads)));
    float* first = split_partial(index, chunks.begin);
    for (int c = chunks.begin + 1; c < chunks.end; ++c) {
      ops_.attention_merge(first, split_partial(index, c), layout().head_dim);
    }
    ops_.attention_finish(first, args_.out + index * layout().head_dim, layout().head_dim);
  }

  void whole_item(const Block& block, int thread) {
    // More query heads than a share takes only happens in blocks of one row.
    for (int from = 0; from < group_heads_; from += kMaxChunkQueries) {
      whole_heads(block, from, std::min(group_heads_, from + kMaxChunkQueries), thread);
    }
  }

  void whole_heads(const Block& block, int from, int to, int thread) {
    alignas(64) float sums[kMaxChunkQueries * kMaxPartial];
    alignas(64) float news[kMaxChunkQueries * kMaxPartial];
    const int head_dim = layout().head_dim;
    const auto offset = [&](int r, int h) {
      return (int64_t{r - block.begin} * (to - from) + (h - from)) * workspace_.partial_stride;
    };
    for (int c = block.chunks.begin; c < block.chunks.end; ++c) {
      run_chunk(block, c, thread, from, to, [&](int r, int h) {
        return (c == chunks_of(row(r)).begin ? sums : news) + offset(r, h);
      });
      for (int r = block.begin; r < block.end; ++r) {
        if (!sees(row(r), c) || c == chunks_of(row(r)).begin) continue;
        for (int h = from; h < to; ++h) {
          ops_.attention_merge(sums + offset(r, h), news + offset(r, h), head_dim);
        }
      }
    }
    for (int r = block.begin; r < block.end; ++r) {
      for (int h = from; h < to; ++h) {
        ops_.attention_finish(sums + offset(r, h),
                              args_.out + row_head(r, block.kv_head, h) * head_dim, head_dim);
      }
    }
  }

  template <typename PartialOf>
  void run_chunk(const Block& block, int chunk, int thread, const PartialOf& partial_of) {
    for (int from = 0; from < group_heads_; from += kMaxChunkQueries) {
      run_chunk(block, chunk, thread, from, std::min(group_heads_, from + kMaxChunkQueries),
                partial_of);
    }
  }

  // The partial results of heads [from, to) of the block's rows that see the chunk.
  template <typename PartialOf>
  void run_chunk(const Block& block, int chunk, int thread, int from, int to,
                 const PartialOf& partial_of) {
    ChunkShare share;
    share.head_dim = layout().head_dim;
    share.scale = args_.scale;
    share.soft_cap = args_.soft_cap;
    for (int r = block.begin; r < block.end; ++r) {
      if (!sees(row(r), chunk) || !reads_pages(row(r), chunk)) continue;
      point_at_pages(row(r), block.kv_head, chunk, share);
      add_queries(share, block, r, chunk, from, to, partial_of);
    }
    if (share.queries > 0) ops_.attention_chunk(share);
    for (int r = block.begin; r < block.end; ++r) {
      if (!sees(row(r), chunk) || reads_pages(row(r), chunk)) continue;
      share.queries = 0;
      gather(row(r), block.kv_head, chunk, thread, share);
      add_queries(share, block, r, chunk, from, to, partial_of);
      ops_.attention_chunk(share);
    }
  }

  template <typename PartialOf>
  void add_queries(ChunkShare& share, const Block& block, int r, int chunk, int from, int to,
                   const PartialOf& partial_of) const {
    const Range seen = seen_of(row(r), chunk);
    for (int h = from; h < to; ++h) {
      share.q[share.queries] = args_.q + row_head(r, block.kv_head, h) * layout().head_dim;
      share.begin[share.queries] = seen.begin;
      share.end[share.queries] = seen.end;
      share.partial[share.queries] = partial_of(r, h);
      ++share.queries;
    }
  }

  // Pages of which the row sees nothing are not looked up: they may not exist.
  void point_at_pages(const AttentionRow& r, int kv_head, int chunk, ChunkShare& share) const {
    const Range seen = seen_of(r, chunk);
    for (int i = seen.begin / kPagePositions; i * kPagePositions < seen.end; ++i) {
      if (share.keys[i] == nullptr) point_at_page(r, kv_head, chunk, i, share);
    }
  }

  void point_at_page(const AttentionRow& r, int kv_head, int chunk, int i,
                     ChunkShare& share) const {
    const int32_t page = r.pages[chunk * kPagesPerChunk + i];
    share.keys[i] = args_.kv + layout().keys(page, kv_head);
    share.values[i] = args_.kv + layout().values(page, kv_head);
  }

  // Lines up what a row sees of the chunk whose ancestors lie elsewhere than its positions say.
  void gather(const AttentionRow& r, int kv_head, int chunk, int thread, ChunkShare& share) const {
    const Range seen = seen_of(r, chunk);
    const int start = chunk * kAttentionChunk;
    uint16_t* scratch = const_cast<uint16_t*>(workspace_.gathered.as<uint16_t>().data()) +
                        thread * workspace_.gathered_stride;
    for (int i = seen.begin / kPagePositions; i * kPagePositions < seen.end; ++i) {
      const int begin = std::max(i * kPagePositions, seen.begin);
      const int end = std::min((i + 1) * kPagePositions, seen.end);
      if (start + end <= r.committed) {
        point_at_page(r, kv_head, chunk, i, share);
        continue;
      }
      uint16_t* page = scratch + i * layout().head();
      for (int p = start + begin; p < start + end; ++p) {
        const int32_t slot = p < r.committed
                                 ? r.pages[p / kPagePositions] * kPagePositions + p % kPagePositions
                                 : r.tail[p - r.committed];
        copy_position(kv_head, slot, p % kPagePositions, page);
      }
      share.keys[i] = page;
      share.values[i] = page + layout().half_head();
    }
  }

  void copy_position(int kv_head, int32_t slot, int offset, uint16_t* to) const {
    const int head_dim = layout().head_dim;
    const int from_offset = slot % kPagePositions;
    const uint16_t* keys = args_.kv + layout().keys(slot / kPagePositions, kv_head);
    for (int d = 0; d < head_dim; ++d) {
      to[layout().key_element(offset, d)] = keys[layout().key_element(from_offset, d)];
    }
    std::memcpy(to + layout().half_head() + int64_t{offset} * head_dim,
                args_.kv + layout().values(slot / kPagePositions, kv_head) +
                    int64_t{from_offset} * head_dim,
                static_cast<size_t>(head_dim) * sizeof(uint16_t));
  }

  const CpuOps& ops_;
  const AttentionArgs& args_;
  AttentionWorkspace& workspace_;
  int group_heads_;
};

}  // namespace

void run_attention(ThreadPool& pool, const CpuOps& ops, const AttentionArgs& args) {
  assert(args.layout.head_dim % 16 == 0 && args.layout.head_dim <= kMaxHeadDim);
  if (args.rows.empty()) return;
  Attention(ops, args).run(pool);
}

}  // namespace aerie::kernels

#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace aerie::kernels {
namespace {

constexpr int kPagesPerChunk = kAttentionChunk / kPagePositions;
constexpr int kMaxPartial = kMaxHeadDim + kPartialTail;

int chunks_seen(const AttentionRow& row) {
  return row.position / kAttentionChunk + 1;
}

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
    int chunks = 1;
    for (const AttentionRow& row : args_.rows) chunks = std::max(chunks, chunks_seen(row));
    assert(chunks <= workspace_.max_chunks);
    const auto blocks = static_cast<int64_t>(workspace_.blocks.size()) - 1;
    const int64_t items = blocks * args_.layout.kv_heads;
    // Few rows over a long context would leave threads idle: then chunks are shares of their own.
    // The partial results and the order in which they merge are the same either way.
    if (chunks > 1 && rows() <= AttentionWorkspace::kSplitRows) {
      pool.parallel_for(items * chunks, 1, [&](int64_t begin, int64_t end, int thread) {
        for (int64_t i = begin; i < end; ++i) {
          split_item(i / chunks, static_cast<int>(i % chunks), thread);
        }
      });
      pool.parallel_for(rows() * args_.heads, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) merge_split(i);
      });
    } else {
      pool.parallel_for(items, 1, [&](int64_t begin, int64_t end, int thread) {
        for (int64_t i = begin; i < end; ++i) whole_item(i, thread);
      });
    }
  }

 private:
  struct Block {
    int begin, end;  // rows
    int kv_head;
  };

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
    const auto b = static_cast<size_t>(item / args_.layout.kv_heads);
    return {workspace_.blocks[b], workspace_.blocks[b + 1],
            static_cast<int>(item % args_.layout.kv_heads)};
  }

  const AttentionRow& row(int r) const { return args_.rows[static_cast<size_t>(r)]; }
  float* split_partial(int64_t row_head, int chunk) const {
    float* base = const_cast<float*>(workspace_.partials.as<float>().data());
    return base + (row_head * workspace_.max_chunks + chunk) * workspace_.partial_stride;
  }
  int64_t row_head(int r, int kv_head, int h) const {
    return int64_t{r} * args_.heads + kv_head * group_heads_ + h;
  }

  void split_item(int64_t item, int chunk, int thread) {
    const Block block = block_of(item);
    run_chunk(block, chunk, thread,
              [&](int r, int h) { return split_partial(row_head(r, block.kv_head, h), chunk); });
  }

  void merge_split(int64_t index) {
    const int chunks = chunks_seen(row(static_cast<int>(index / args_.heads)));
    float* first = split_partial(index, 0);
    for (int c = 1; c < chunks; ++c) {
      ops_.attention_merge(first, split_partial(index, c), args_.layout.head_dim);
    }
    ops_.attention_finish(first, args_.out + index * args_.layout.head_dim, args_.layout.head_dim);
  }

  void whole_item(int64_t item, int thread) {
    const Block block = block_of(item);
    // More query heads than a share takes only happens in blocks of one row.
    for (int from = 0; from < group_heads_; from += kMaxChunkQueries) {
      whole_heads(block, from, std::min(group_heads_, from + kMaxChunkQueries), thread);
    }
  }

  void whole_heads(const Block& block, int from, int to, int thread) {
    alignas(64) float sums[kMaxChunkQueries * kMaxPartial];
    alignas(64) float news[kMaxChunkQueries * kMaxPartial];
    const int head_dim = args_.layout.head_dim;
    const int64_t stride = workspace_.partial_stride;
    const auto index = [&](int r, int h) {
      return int64_t{r - block.begin} * (to - from) + (h - from);
    };
    int chunks = 0;
    for (int r = block.begin; r < block.end; ++r) chunks = std::max(chunks, chunks_seen(row(r)));
    for (int c = 0; c < chunks; ++c) {
      float* target = c == 0 ? sums : news;
      run_chunk(block, c, thread, from, to,
                [&](int r, int h) { return target + index(r, h) * stride; });
      if (c == 0) continue;
      for (int r = block.begin; r < block.end; ++r) {
        if (c >= chunks_seen(row(r))) continue;
        for (int h = from; h < to; ++h) {
          ops_.attention_merge(sums + index(r, h) * stride, news + index(r, h) * stride, head_dim);
        }
      }
    }
    for (int r = block.begin; r < block.end; ++r) {
      for (int h = from; h < to; ++h) {
        ops_.attention_finish(sums + index(r, h) * stride,
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
    share.head_dim = args_.layout.head_dim;
    share.scale = args_.scale;
    for (int r = block.begin; r < block.end; ++r) {
      if (!reads_pages(row(r), chunk) || chunk >= chunks_seen(row(r))) continue;
      if (share.queries == 0) point_at_pages(block, row(r), chunk, share);
      add_queries(share, block, r, chunk, from, to, partial_of);
    }
    if (share.queries > 0) ops_.attention_chunk(share);
    for (int r = block.begin; r < block.end; ++r) {
      if (reads_pages(row(r), chunk) || chunk >= chunks_seen(row(r))) continue;
      share.queries = 0;
      gather(row(r), block.kv_head, chunk, thread, share);
      add_queries(share, block, r, chunk, from, to, partial_of);
      ops_.attention_chunk(share);
    }
  }

  template <typename PartialOf>
  void add_queries(ChunkShare& share, const Block& block, int r, int chunk, int from, int to,
                   const PartialOf& partial_of) const {
    const int visible = std::min(kAttentionChunk, row(r).position + 1 - chunk * kAttentionChunk);
    for (int h = from; h < to; ++h) {
      share.q[share.queries] = args_.q + row_head(r, block.kv_head, h) * args_.layout.head_dim;
      share.visible[share.queries] = visible;
      share.partial[share.queries] = partial_of(r, h);
      ++share.queries;
    }
  }

  // Pages beyond the last position that the block sees are not looked up: they may not exist.
  void point_at_pages(const Block& block, const AttentionRow& any, int chunk,
                      ChunkShare& share) const {
    int last = 0;
    for (int r = block.begin; r < block.end; ++r) {
      if (reads_pages(row(r), chunk)) last = std::max(last, row(r).position);
    }
    for (int i = 0; i < kPagesPerChunk; ++i) {
      const int start = chunk * kAttentionChunk + i * kPagePositions;
      if (start > last) break;
      const int32_t page = any.pages[start / kPagePositions];
      share.keys[i] = args_.kv + args_.layout.keys(page, block.kv_head);
      share.values[i] = args_.kv + args_.layout.values(page, block.kv_head);
    }
  }

  // Lines up the chunk of a row whose ancestors lie elsewhere than its positions say.
  void gather(const AttentionRow& r, int kv_head, int chunk, int thread, ChunkShare& share) const {
    const KvLayout& layout = args_.layout;
    uint16_t* scratch = const_cast<uint16_t*>(workspace_.gathered.as<uint16_t>().data()) +
                        thread * workspace_.gathered_stride;
    for (int i = 0; i < kPagesPerChunk; ++i, scratch += layout.head()) {
      const int start = chunk * kAttentionChunk + i * kPagePositions;
      if (start > r.position) break;
      if (start + kPagePositions <= r.committed) {
        const int32_t page = r.pages[start / kPagePositions];
        share.keys[i] = args_.kv + layout.keys(page, kv_head);
        share.values[i] = args_.kv + layout.values(page, kv_head);
        continue;
      }
      const int end = std::min(start + kPagePositions - 1, r.position);
      for (int p = start; p <= end; ++p) {
        const int32_t slot = p < r.committed
                                 ? r.pages[p / kPagePositions] * kPagePositions + p % kPagePositions
                                 : r.tail[p - r.committed];
        copy_position(kv_head, slot, p % kPagePositions, scratch);
      }
      share.keys[i] = scratch;
      share.values[i] = scratch + layout.half_head();
    }
  }

  void copy_position(int kv_head, int32_t slot, int offset, uint16_t* to) const {
    const KvLayout& layout = args_.layout;
    const int from_offset = slot % kPagePositions;
    const uint16_t* keys = args_.kv + layout.keys(slot / kPagePositions, kv_head);
    for (int d = 0; d < layout.head_dim; ++d) {
      to[layout.key_element(offset, d)] = keys[layout.key_element(from_offset, d)];
    }
    std::memcpy(to + layout.half_head() + int64_t{offset} * layout.head_dim,
                args_.kv + layout.values(slot / kPagePositions, kv_head) +
                    int64_t{from_offset} * layout.head_dim,
                static_cast<size_t>(layout.head_dim) * sizeof(uint16_t));
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

#include "kernels/cpu/recurrence.h"

#include <algorithm>

namespace aerie::kernels {
namespace {

constexpr int64_t kChannelGrain = 64;

// The tiles of one head of one sequence, through all of its rows.
class HeadRun {
 public:
  HeadRun(const CpuOps& ops, const DeltaRuleArgs& args, const StateSequence& sequence, int head,
          float* scratch)
      : ops_(ops),
        args_(args),
        layout_(args.layout),
        sequence_(sequence),
        head_(head),
        key_head_(layout_.key_head(head)),
        work_(scratch),
        kept_(scratch + layout_.tile()) {}

  void run() {
    if (first_of_key_head()) copy_keys();
    for (v_ = 0; v_ < layout_.value_dim; v_ += kStateLanes) {
      settle();
      for (const int32_t row : sequence_.rows) step(row);
    }
  }

 private:
  const StateRow& row(int32_t r) const { return args_.rows[static_cast<size_t>(r)]; }
  float* record(int32_t r) const { return args_.records + r * layout_.record(); }
  float* tile_of(int32_t slot) const {
    return args_.states + slot * layout_.state() + head_ * layout_.matrix() +
           v_ * int64_t{layout_.key_dim};
  }
  // Of the tile's changes in a record.
  int64_t change_at() const { return layout_.changes() + int64_t{head_} * layout_.value_dim + v_; }
  float* kept(const StateRow& r) const { return kept_ + r.keep * layout_.tile(); }
  const float* key_of(int32_t r) const {
    return args_.k + r * layout_.keys() + int64_t{key_head_} * layout_.key_dim;
  }
  bool first_of_key_head() const {
    return layout_.order == HeadOrder::kTiled ? head_ < layout_.key_heads
                                              : head_ % (layout_.heads / layout_.key_heads) == 0;
  }

  void copy_keys() const {
    for (const int32_t r : sequence_.rows) {
      if (row(r).record < 0) continue;
      std::copy_n(key_of(r), layout_.key_dim,
                  record(row(r).record) + int64_t{key_head_} * layout_.key_dim);
    }
  }

  void apply(const float* from, int32_t index, float* to) const {
    const float* r = record(index);
    ops_.advance_state(from, layout_.key_dim, r[layout_.decays() + head_],
                       r + int64_t{key_head_} * layout_.key_dim, r + change_at(), to);
  }

  // The state that the rows go on from, with the settled rows' changes.
  void settle() {
    base_ = tile_of(sequence_.slot);
    const bool used = !sequence_.settled.empty();
    if (sequence_.blank && used) std::fill_n(base_, layout_.tile(), 0.0f);
    for (const int32_t index : sequence_.settled) apply(base_, index, base_);
    if (sequence_.blank && !used) base_ = nullptr;
  }

  const float* before(const StateRow& r) {
    if (r.parent >= 0) return row(r.parent).keep >= 0 ? kept(row(r.parent)) : work_;
    const float* from = base_;
    if (from == nullptr) {
      std::fill_n(work_, layout_.tile(), 0.0f);
      from = work_;
    }
    for (const int32_t index : r.above) {
      apply(from, index, work_);
      from = work_;
    }
    return from;
  }

  void step(int32_t index) {
    const StateRow& r = row(index);
    const float* from = before(r);
    const int64_t head_at = int64_t{index} * layout_.heads + head_;
    const int64_t value_at = head_at * layout_.value_dim + v_;
    float spare[kStateLanes];
    DeltaRow share;
    share.state = from;
    share.key_dim = layout_.key_dim;
    share.key = key_of(index);
    share.query = args_.q + index * layout_.keys() + int64_t{key_head_} * layout_.key_dim;
    share.value = args_.v + value_at;
    share.decay = args_.decay[head_at];
    share.beta = args_.beta[head_at];
    share.out = args_.out + value_at;
    share.change = spare;
    share.subtract = args_.subtract;
    if (r.record >= 0) {
      float* kept_record = record(r.record);
      share.change = kept_record + change_at();
      if (v_ == 0) kept_record[layout_.decays() + head_] = share.decay;
    }
    ops_.delta_row(share);
    if (!r.needed) return;
    float* to = r.keep >= 0 ? kept(r) : work_;
    ops_.advance_state(from, layout_.key_dim, share.decay, share.key, share.change, to);
    for (const int32_t slot : r.into) {
      if (slot >= 0) std::copy_n(to, layout_.tile(), tile_of(slot));
    }
  }

  const CpuOps& ops_;
  const DeltaRuleArgs& args_;
  const StateLayout& layout_;
  const StateSequence& sequence_;
  int head_, key_head_;
  float* work_;            // the state after the row that came last
  float* kept_;            // those that later rows go on from
  float* base_ = nullptr;  // null: zeros
  int v_ = 0;              // the first value of the tile
};

}  // namespace

void run_short_conv(ThreadPool& pool, const CpuOps& ops, const ShortConvArgs& args) {
  int64_t channels = 0;
  for (const ShortConvArgs::Part& part : args.parts) channels += part.channels;
  const auto rows = static_cast<int64_t>(args.inputs.size()) / args.taps;
  pool.parallel_for(channels, kChannelGrain, [&](int64_t begin, int64_t end, int) {
    int64_t first = 0;  // of the part, among all
    for (const ShortConvArgs::Part& part : args.parts) {
      const int64_t from = std::max(begin, first), to = std::min(end, first + part.channels);
      for (int64_t r = 0; from < to && r < rows; ++r) {
        ops.short_conv({args.inputs.data() + r * args.taps, args.taps, args.weights, channels, from,
                        to - from, part.y + r * part.channels + (from - first), args.bias,
                        args.silu});
      }
      first += part.channels;
    }
    for (const ShortConvArgs::Copy& copy : args.copies) {
      if (copy.from == nullptr) {
        std::fill_n(copy.to + begin, end - begin, 0.0f);
      } else {
        std::copy_n(copy.from + begin, end - begin, copy.to + begin);
      }
    }
  });
}

void run_delta_rule(ThreadPool& pool, const CpuOps& ops, const DeltaRuleArgs& args) {
  const int64_t heads = args.layout.heads;
  const int64_t scratch = (1 + args.workspace->most_kept) * args.layout.tile();
  pool.parallel_for(static_cast<int64_t>(args.sequences.size()) * heads, 1,
                    [&](int64_t begin, int64_t end, int thread) {
                      float* tiles = args.workspace->tiles.as<float>().data() + thread * scratch;
                      for (int64_t i = begin; i < end; ++i) {
                        HeadRun(ops, args, args.sequences[static_cast<size_t>(i / heads)],
                                static_cast<int>(i % heads), tiles)
                            .run();
                      }
                    });
}

}  // namespace aerie::kernels

// Tensor parallelism that keeps the ids: each of several processes (ranks) has some outputs of
// every matrix and computes these, then all tell each other. No sum is taken of parts, so that a
// number has the same bits however many ranks there are; adding partial sums up, as is done
// elsewhere (Shoeybi et al. 2019, 1909.08053, section 3), would give other bits for each number of
// ranks.
//
// Heads of keys and values are dealt out, too, with the queries that go with them, and the cache
// keeps a rank's own (kernels::layout_of_rank). Where there are fewer of them than ranks all keep
// all; a single one is read by all, each for some of the queries. All else is small and computed by
// everybody: norms, rotary embedding, gates, routing, states of linear attention.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend_wrapper.h"
#include "parallel/rank_group.h"

namespace aerie {

// What a rank has of a matrix's outputs: whole panels, as even as they can be.
kernels::Share outputs_of(int64_t outputs, int rank, int ranks);

// Every rank makes the same calls in the same order. Both must outlive it. One call at a time.
// Caches are made for the rank (ModelConfig::rank); with another all heads are kept and computed by
// all.
class SplitBackend final : public kernels::BackendWrapper {
 public:
  SplitBackend(const kernels::Backend& own, Group& group);

  int64_t packed_bytes(const TensorView& weights) const override;
  Expected<kernels::PackedMatrix> allocate(const TensorView& weights, Arena& arena) const override;
  void pack(ThreadPool& pool, std::span<const TensorView> weights,
            std::span<kernels::PackedMatrix> matrices) const override;
  void fill(ThreadPool& pool, std::span<kernels::PackedMatrix> matrices,
            const kernels::FillPart& part) const override;
  void matmul(ThreadPool& pool, const kernels::Activations& x,
              std::span<const kernels::MatmulTarget> targets) const override;
  void store_kv(ThreadPool& pool, const kernels::KvLayout& layout, const float* k, const float* v,
                std::span<const int32_t> slots, std::byte* kv) const override;
  void attention(ThreadPool& pool, const kernels::AttentionArgs& args) const override;

  // Since the last reset(), in seconds: in products and attention, of which this rank has a part;
  // and in telling and waiting. Messages to each other rank, and bytes that all ranks together have
  // told one another, each counted once.
  struct Tally {
    double split = 0.0;
    double told = 0.0;
    int64_t messages = 0;
    int64_t bytes = 0;
  };
  const Tally& tally() const { return tally_; }
  void reset() const { tally_ = {}; }

 private:
  // A range of floats of each of some rows that a rank has and all want.
  struct Columns {
    float* first = nullptr;
    int64_t stride = 0;
    int64_t rows = 0;
    int64_t count = 0;
  };
  // Columns by rank, those of one after the other; all ranks have as many.
  void exchange(std::span<const Columns> columns) const;

  Group& group_;
  mutable Tally tally_;
  // Scratch: it grows to what the largest pass takes.
  mutable std::vector<kernels::MatmulTarget> targets_;
  mutable std::vector<Columns> columns_;
  mutable std::vector<float> gathered_, queries_, attended_, keys_, values_;
  mutable std::vector<std::span<std::byte>> parts_;
};

}  // namespace aerie

#include "parallel/split_backend.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/clock.h"

namespace aerie {

using kernels::Activations;
using kernels::KvLayout;
using kernels::MatmulTarget;
using kernels::PackedMatrix;
using kernels::Share;

namespace {

// Outputs that stay together: those of a panel, or, where there are enough of them, of the panels
// that are read at a time.
constexpr int kPanel = 16;
constexpr int kPanels = 4;

// Those outputs of a matrix; the view may have no data.
TensorView outputs_view(const TensorView& weights, Share outputs) {
  TensorView part = weights;
  if (part.valid()) part.data = weights.row(outputs.begin);
  part.shape = {weights.row_length(), outputs.count, 1, 1};
  return part;
}

// The queries' heads that a rank computes. A layout that is nobody's part has all.
Share queries_of(const KvLayout& layout, int heads, int rank, int ranks) {
  if (layout.all_heads == 0) return {0, heads};
  if (layout.all_heads >= ranks) {
    const Share keys = kernels::share_of(layout.all_heads, rank, ranks);
    const int each = heads / layout.all_heads;
    return {keys.begin * each, keys.count * each};
  }
  if (layout.all_heads == 1 && heads >= ranks) return kernels::share_of(heads, rank, ranks);
  return {0, heads};
}

// Heads [first, first + count) of rows of `all` heads, side by side.
const float* heads_of(const float* x, int64_t rows, int64_t head_dim, int all, Share heads,
                      std::vector<float>& out) {
  if (heads.count == all) return x;
  const int64_t width = heads.count * head_dim;
  out.resize(std::max(out.size(), static_cast<size_t>(rows * width)));
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(out.data() + r * width, x + (r * all + heads.begin) * head_dim,
                static_cast<size_t>(width) * sizeof(float));
  }
  return out.data();
}

// The parts of matrices that have some: moved out, and back at the end.
class Parts {
 public:
  explicit Parts(std::span<PackedMatrix> whole) {
    for (size_t i = 0; i < whole.size(); ++i) {
      if (whole[i].part->n == 0) continue;
      from_.push_back(whole[i].part.get());
      index_.push_back(i);
      matrices_.push_back(std::move(*whole[i].part));
    }
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  ~Parts() {
    for (size_t i = 0; i < from_.size(); ++i) *from_[i] = std::move(matrices_[i]);
  }

  std::span<PackedMatrix> matrices() { return matrices_; }
  size_t whole(size_t i) const { return index_[i]; }
  size_t size() const { return matrices_.size(); }

 private:
  std::vector<PackedMatrix*> from_;
  std::vector<size_t> index_;
  std::vector<PackedMatrix> matrices_;
};

}  // namespace

Share outputs_of(int64_t outputs, int rank, int ranks) {
  const int64_t together = outputs >= int64_t{kPanels} * kPanel * ranks ? kPanels * kPanel : kPanel;
  const auto units = static_cast<int>((outputs + together - 1) / together);
  const Share share = kernels::share_of(units, rank, ranks);
  const auto bound = [&](int unit) { return static_cast<int>(std::min(outputs, unit * together)); };
  const int begin = bound(share.begin);
  return {begin, bound(share.begin + share.count) - begin};
}

SplitBackend::SplitBackend(const Backend& own, Group& group) : BackendWrapper(own), group_(group) {}

int64_t SplitBackend::packed_bytes(const TensorView& weights) const {
  const Share share = outputs_of(weights.rows(), group_.rank(), group_.size());
  return share.count == 0 ? 0 : inner().packed_bytes(outputs_view(weights, share));
}

Expected<PackedMatrix> SplitBackend::allocate(const TensorView& weights, Arena& arena) const {
  const Share share = outputs_of(weights.rows(), group_.rank(), group_.size());
  PackedMatrix matrix;
  matrix.dtype = weights.dtype;
  matrix.n = weights.rows();
  matrix.k = weights.row_length();
  matrix.part_begin = share.begin;
  matrix.part = std::make_unique<PackedMatrix>();
  if (share.count == 0) return matrix;
  AERIE_ASSIGN_OR_RETURN(*matrix.part, inner().allocate(outputs_view(weights, share), arena));
  return matrix;
}

void SplitBackend::pack(ThreadPool& pool, std::span<const TensorView> weights,
                        std::span<PackedMatrix> matrices) const {
  Parts parts(matrices);
  std::vector<TensorView> views;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto begin = static_cast<int>(matrices[parts.whole(i)].part_begin);
    const auto count = static_cast<int>(parts.matrices()[i].n);
    views.push_back(outputs_view(weights[parts.whole(i)], {begin, count}));
  }
  if (!views.empty()) inner().pack(pool, views, parts.matrices());
}

void SplitBackend::fill(ThreadPool& pool, std::span<PackedMatrix> matrices,
                        const kernels::FillPart& part) const {
  Parts parts(matrices);
  inner().fill(pool, parts.matrices(),
               [&](size_t index, int64_t offset, std::span<std::byte> bytes) {
                 part(parts.whole(index), offset, bytes);
               });
}

void SplitBackend::exchange(std::span<const Columns> columns) const {
  const SteadyTime start = steady_now();
  const auto ranks = static_cast<size_t>(group_.size()), own = static_cast<size_t>(group_.rank());
  const size_t each = columns.size() / ranks;
  parts_.resize(ranks);
  size_t total = 0;
  for (const Columns& c : columns) total += static_cast<size_t>(c.rows * c.count);
  gathered_.resize(std::max(gathered_.size(), total));
  float* at = gathered_.data();
  for (size_t rank = 0; rank < ranks; ++rank) {
    float* const begin = at;
    for (const Columns& c : columns.subspan(rank * each, each)) {
      for (int64_t r = 0; r < c.rows && rank == own; ++r) {
        std::memcpy(at + r * c.count, c.first + r * c.stride,
                    static_cast<size_t>(c.count) * sizeof(float));
      }
      at += c.rows * c.count;
    }
    parts_[rank] = std::as_writable_bytes(std::span(begin, at));
  }
  group_.all_gather(parts_);
  const float* from = gathered_.data();
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (const Columns& c : columns.subspan(rank * each, each)) {
      for (int64_t r = 0; r < c.rows && rank != own; ++r) {
        std::memcpy(c.first + r * c.stride, from + r * c.count,
                    static_cast<size_t>(c.count) * sizeof(float));
      }
      from += c.rows * c.count;
    }
  }
  ++tally_.messages;
  tally_.bytes += static_cast<int64_t>(total * sizeof(float));
  tally_.told += seconds_since(start);
}

void SplitBackend::matmul(ThreadPool& pool, const Activations& x,
                          std::span<const MatmulTarget> targets) const {
  targets_.clear();
  for (const MatmulTarget& whole : targets) {
    PackedMatrix* part = whole.w->part.get();
    if (part->n == 0) continue;
    part->factor = whole.w->factor;  // the loader knows it last
    MatmulTarget target = whole;
    target.w = part;
    target.y += whole.w->part_begin;
    if (target.bias != nullptr) target.bias += whole.w->part_begin;
    targets_.push_back(target);
  }
  const SteadyTime start = steady_now();
  if (!targets_.empty()) inner().matmul(pool, x, targets_);
  tally_.split += seconds_since(start);
  columns_.clear();
  for (int rank = 0; rank < group_.size(); ++rank) {
    for (const MatmulTarget& t : targets) {
      const Share share = outputs_of(t.w->n, rank, group_.size());
      const int64_t rows = x.groups.empty() ? x.rows : x.groups[t.group].rows;
      columns_.push_back({t.y + share.begin, t.stride, rows, share.count});
    }
  }
  exchange(columns_);
}

void SplitBackend::store_kv(ThreadPool& pool, const KvLayout& layout, const float* k,
                            const float* v, std::span<const int32_t> slots, std::byte* kv) const {
  if (layout.all_heads == 0) return inner().store_kv(pool, layout, k, v, slots, kv);
  const auto rows = static_cast<int64_t>(slots.size());
  const Share own = {layout.first_head, layout.kv_heads};
  k = heads_of(k, rows, layout.head_dim, layout.all_heads, own, keys_);
  if (layout.value_prefix == 0) {
    v = heads_of(v, rows, layout.head_dim, layout.all_heads, own, values_);
  }
  inner().store_kv(pool, layout, k, v, slots, kv);
}

void SplitBackend::attention(ThreadPool& pool, const kernels::AttentionArgs& args) const {
  const auto rows = static_cast<int64_t>(args.rows.size());
  const int64_t width = args.layout.value_dim();
  const Share own = queries_of(args.layout, args.heads, group_.rank(), group_.size());
  if (own.count == args.heads) return inner().attention(pool, args);
  kernels::AttentionArgs part = args;
  part.heads = own.count;
  part.q = heads_of(args.q, rows, args.layout.head_dim, args.heads, own, queries_);
  attended_.resize(std::max(attended_.size(), static_cast<size_t>(rows * own.count * width)));
  part.out = attended_.data();
  if (part.sinks != nullptr) part.sinks += own.begin;
  const SteadyTime start = steady_now();
  inner().attention(pool, part);
  tally_.split += seconds_since(start);
  columns_.clear();
  for (int rank = 0; rank < group_.size(); ++rank) {
    const Share share = queries_of(args.layout, args.heads, rank, group_.size());
    columns_.push_back(
        {args.out + share.begin * width, args.heads * width, rows, share.count * width});
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(args.out + (r * args.heads + own.begin) * width,
                attended_.data() + r * own.count * width,
                static_cast<size_t>(own.count * width) * sizeof(float));
  }
  exchange(columns_);
}

}  // namespace aerie

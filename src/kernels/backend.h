// The arithmetic of a forward pass behind one interface, one implementation for each instruction
// set.
//
// Row invariance: the bits of a row's result depend on that row's inputs alone, not on the number
// of rows, the row's place among them, the thread count or the page layout. Every operation here
// keeps it: sums run over K in one order for every number of rows, attention works in chunks of
// kAttentionChunk positions counted from position 0 whose partial results merge in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/delta_rule.h"
#include "kernels/kv_layout.h"
#include "kernels/op_kinds.h"
#include "tensor/tensor.h"

namespace aerie::kernels {

enum class Isa : uint8_t {
  kReference,  // scalar, in float, on weights dequantised as they are used; runs everywhere
  kAvx2,       // AVX2, FMA, F16C
  kAvx512,     // AVX-512 F, BW, DQ, VL, VNNI
  kAvx512Bw,   // the same without VNNI
  kAvxVnni,    // as kAvx2, and AVX-VNNI
  kNeon,       // Armv8.2-A with the dot product
  kAmx,        // as kAvx512, and AMX's products of bytes
};
inline constexpr Isa kEveryIsa[] = {Isa::kReference, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bw,
                                    Isa::kAvxVnni,   Isa::kNeon, Isa::kAmx};
std::string_view isa_name(Isa isa);  // as --isa has it: "reference", "avx2", ...
// Those in this build, the fastest first; the reference is the last.
std::span<const Isa> built_isas();
bool isa_supported(Isa isa);  // by this build and this processor
Isa best_isa();               // the fastest that is supported

// A weight matrix of n outputs by k inputs in a backend's own layout. Belongs to the backend that
// packed it, must not be handed to another.
struct PackedMatrix {
  DType dtype = DType::kF32;
  int64_t n = 0;
  int64_t k = 0;
  Buffer data;
  // What the weights are multiplied by besides: their products are, once, when they are summed up.
  float factor = 1.0f;
  // Where several processes share the matrix (parallel/split_backend.h): the outputs from
  // `part_begin` on that this one has, in the place of `data`.
  std::unique_ptr<PackedMatrix> part;
  int64_t part_begin = 0;

  int64_t bytes() const { return part ? part->bytes() : static_cast<int64_t>(data.size()); }
};

// Writes bytes [offset, offset + part.size()) of the data of matrix `index` of a call.
using FillPart = std::function<void(size_t index, int64_t offset, std::span<std::byte> part)>;

// Rows of activations as matrix products take them: as floats, and in 8 bits with a scale for each
// kActivationGroup of k. Memory for `capacity` rows is allocated once.
inline constexpr int kActivationGroup = 32;

// Rows [begin, begin + rows) of activations, which are for matrices of their own: those of an
// expert.
struct RowGroup {
  int64_t begin = 0;
  int64_t rows = 0;
};

struct Activations {
  int64_t k = 0;     // length of a row in use; at most max_k
  int64_t rows = 0;  // rows in use
  // What is to be made of the floats: for weights of the types for which wants_int8() holds, and
  // for the others.
  bool has_int8 = false;
  bool has_ordered = false;
  // What the rows are divided into, in order and without gaps; none: all are one group. To be set
  // before the rows are filled.
  std::span<const RowGroup> groups;

  int64_t max_k = 0;
  int64_t capacity = 0;
  // Of those in 8 bits, as the backend orders them that wrote them.
  int64_t most_tile_rows = 8;
  Buffer floats;  // float [rows][k]
  // In the backend's own order (cpu/tiles.h), which depends on `rows`: the floats once more; int8
  // codes, float scales of groups, int32 sums of the codes of halves and groups, float sums times
  // scales.
  Buffer ordered;
  Buffer codes;
  Buffer scales;
  Buffer sums;
  Buffer scaled_sums;

  static Expected<Activations> allocate(int64_t capacity, int64_t max_k);
  float* row(int64_t r) { return floats.as<float>().data() + r * k; }
  const float* row(int64_t r) const { return floats.as<float>().data() + r * k; }
};

// One product of a group that shares its input:
// y[r][0 .. n) = (accumulate ? y : 0) + (w.factor x[r] w^T + bias).
struct MatmulTarget {
  const PackedMatrix* w = nullptr;
  float* y = nullptr;
  int64_t stride = 0;  // floats between rows of y; >= w->n
  bool accumulate = false;
  const float* bias = nullptr;  // [n]; null: 0
  // Index of the group of x's rows that the product is for, whose first row goes to y. 0 where x
  // has no groups.
  size_t group = 0;
};

// A row of queries and what it sees: its sequence's committed positions through `pages`, then its
// ancestors in the batch and itself through `tail`.
struct AttentionRow {
  int32_t position = 0;
  int32_t committed = 0;
  const int32_t* pages =
      nullptr;  // page of position p < committed (or any, if linear): pages[p / 64]
  const int32_t* tail = nullptr;  // slots of positions committed .. position
  bool linear = false;            // every tail slot is where `pages` puts its position
  int32_t group = 0;              // equal for rows that share `pages`; such rows lie side by side
};

// Scratch of one attention call, allocated once for the largest.
struct AttentionWorkspace {
  Buffer partials;              // float [rows][heads][chunks][partial_stride], rows <= kSplitRows
  std::vector<int32_t> blocks;  // first rows of the blocks that share their keys
  int64_t partial_stride = 0;
  int64_t max_chunks = 0;

  static constexpr int64_t kSplitRows = 64;
  static Expected<AttentionWorkspace> allocate(const KvLayout& layout, int heads, int max_rows,
                                               int max_positions);
};

struct AttentionArgs {
  const float* q = nullptr;  // [rows][heads][head_dim], after rotary embedding
  float* out = nullptr;      // [rows][heads][layout.value_dim()]
  int heads = 0;
  float scale = 1.0f;  // on q k
  // A row at position p sees positions > p - window alone; 0: all. What lies before is not touched:
  // pages that end before every row's window need not exist.
  int window = 0;
  float soft_cap = 0.0f;  // scores become cap tanh(score / cap); 0: they stay
  // [heads]: a score more for each head, neither scaled nor capped, that takes its share of softmax
  // and has no value (Xiao et al. 2023, 2309.17453, section 3; gpt-oss). Null: none.
  const float* sinks = nullptr;
  KvLayout layout;
  const std::byte* kv = nullptr;  // the layer's plane of the cache
  std::span<const AttentionRow> rows;
  AttentionWorkspace* workspace = nullptr;
};

inline constexpr int kMostTop = 16;  // of Backend::top_k()

// All pointers are to memory of this backend's device; calls return when the work is done. Sizes
// are the caller's to check: violations are programming errors. Const and stateless, but a pool
// serves one call at a time.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Isa isa() const = 0;

  // Bytes of PackedMatrix::data for a [k, n] view of any DType, whose values are not read.
  virtual int64_t packed_bytes(const TensorView& weights) const = 0;
  // Whether matrices take their data from the arena that allocate() is given.
  virtual bool uses_arena() const { return true; }
  // A matrix for such a view with all of its data 0.
  virtual Expected<PackedMatrix> allocate(const TensorView& weights, Arena& arena) const;
  // Repacks views into matrices that allocate() made for them. What will go into one matmul() goes
  // into one call: each thread of the pool then writes, and so brings into the memory near it, what
  // it will read.
  virtual void pack(ThreadPool& pool, std::span<const TensorView> weights,
                    std::span<PackedMatrix> matrices) const = 0;
  // Data that pack() made before, in the same shares: threads of the pool call `part` for parts
  // that cover everything and begin at multiples of 64 bytes.
  virtual void fill(ThreadPool& pool, std::span<PackedMatrix> matrices,
                    const FillPart& part) const = 0;
  // allocate() and pack() of one matrix with memory of its own.
  Expected<PackedMatrix> packed(ThreadPool& pool, const TensorView& weights) const;
  // Whether products with this type of weight take 8-bit activations.
  virtual bool wants_int8(DType dtype) const = 0;

  // All targets' k are x.k. Requires x.has_int8 if wants_int8() holds for a target, x.has_ordered
  // if it does not for one.
  virtual void matmul(ThreadPool& pool, const Activations& x,
                      std::span<const MatmulTarget> targets) const = 0;

  // out = rows from[0 .. out.rows) of x, which are out.k long.
  virtual void gather(ThreadPool& pool, const float* x, std::span<const int32_t> from,
                      Activations& out) const = 0;
  // y[r] += weights[r][i] x[from[r][i]], i = 0, 1, .. one after the other, for `rows` rows of n;
  // each is made of `count` rows of x.
  virtual void add_weighted(ThreadPool& pool, const float* x, std::span<const int32_t> from,
                            const float* weights, int64_t rows, int64_t count, int64_t n,
                            float* y) const = 0;

  // out = rows of x (stride x_stride) / sqrt(mean(x^2) + eps) * weight (Zhang & Sennrich 2019,
  // 1910.07467).
  virtual void rms_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight,
                        double eps, Activations& out) const = 0;
  // out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias (Ba et al. 2016,
  // 1607.06450). `bias` may be null.
  virtual void layer_norm(ThreadPool& pool, const float* x, int64_t x_stride, const float* weight,
                          const float* bias, double eps, Activations& out) const = 0;
  // rms_norm in place of each head of each row by itself; x [rows][heads][head_dim], weight
  // [head_dim].
  virtual void rms_norm_heads(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim,
                              const float* weight, double eps) const = 0;
  // residual += rms_norm of y, both [rows][n].
  virtual void add_rms_norm(ThreadPool& pool, const float* y, int64_t rows, int64_t n,
                            const float* weight, double eps, float* residual) const = 0;
  // In every function that fills Activations, out.k, out.rows, out.has_int8 and out.has_ordered say
  // what to fill; quantize() makes the rest from floats that are there.
  virtual void quantize(ThreadPool& pool, Activations& out) const = 0;
  // out = activation(gate) * up, all [rows][k] (Shazeer 2020, 2002.05202: SwiGLU, GEGLU). Some
  // activations change `up`, too.
  virtual void gated(ThreadPool& pool, Activation activation, const float* gate, const float* up,
                     Activations& out) const = 0;
  // out = activation(x), both [rows][k].
  virtual void activate(ThreadPool& pool, Activation activation, const float* x,
                        Activations& out) const = 0;
  // x = cap tanh(x / cap) for `count` floats; cap > 0 (Bello et al. 2016, 1611.09940; Gemma 2).
  virtual void soft_cap(ThreadPool& pool, float* x, int64_t count, float cap) const = 0;

  // The k largest of each row of x [rows][n], rows `stride` apart, the largest first and of equals
  // the one with the smaller index: indices and values [rows][k]. log_sums [rows]: the log of the
  // sum of e^x over the n floats of the row, to about 1e-6. For drafts: a row with NaN gives
  // indices that are there, and nothing more. Requires 1 <= k <= min(n, kMostTop).
  virtual void top_k(ThreadPool& pool, const float* x, int64_t stride, int64_t rows, int64_t n,
                     int k, int32_t* indices, float* values, float* log_sums) const = 0;

  // Turns pairs among the first `dimensions` (even, at most head_dim) of each head of each row (Su
  // et al. 2021, 2104.09864), with cosines and sines [rows][dimensions / 2] for the rows'
  // positions.
  virtual void rope(ThreadPool& pool, float* x, int64_t rows, int heads, int head_dim,
                    int dimensions, RopeStyle style, const float* cos, const float* sin) const = 0;
  // Rounds k and v, both [rows][heads of keys and values][head_dim], to the cache's type and puts
  // those that the layout keeps at `slots`.
  // v is not read where values are the beginnings of keys.
  virtual void store_kv(ThreadPool& pool, const KvLayout& layout, const float* k, const float* v,
                        std::span<const int32_t> slots, std::byte* kv) const = 0;
  // softmax(q k^T * scale, soft-capped; the head's sink) v over what each row sees. NaN where all
  // of its scores are.
  virtual void attention(ThreadPool& pool, const AttentionArgs& args) const = 0;

  // Layers with linear attention (kernels/delta_rule.h).
  virtual void short_conv(ThreadPool& pool, const ShortConvArgs& args) const = 0;
  virtual void delta_rule(ThreadPool& pool, const DeltaRuleArgs& args) const = 0;
};

// nullptr if the processor or the build lacks it.
const Backend* backend(Isa isa);

}  // namespace aerie::kernels

// What one instruction set provides: plain functions over plain pointers, each doing the share of
// one thread. cpu_backend.cc divides the work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/panel.h"
#include "kernels/cpu/peak.h"
#include "kernels/cpu/tiles.h"
#include "kernels/kv_layout.h"
#include "kernels/op_kinds.h"

namespace aerie::kernels {

// How a tile goes through panels: which is faster depends on the processor (panel_order.h), and
// bits do not.
enum class PanelOrder : uint8_t {
  kTurns,     // a few groups of each of several panels, which memory answers as so many streams
  kOneByOne,  // a whole panel, then the next, asked for from far ahead
};

// Products of all rows with panels [panel_begin, panel_end).
struct MatmulShare {
  const std::byte* panels = nullptr;
  DType dtype = DType::kF32;
  int64_t panel_bytes = 0;
  int64_t scales_offset = 0;  // within a panel
  int64_t heads_offset = 0;
  int64_t k = 0;
  int64_t n = 0;
  const float* ordered = nullptr;  // this and the next four in tiles
  const int8_t* codes = nullptr;
  const float* scales = nullptr;
  const int32_t* sums = nullptr;
  const float* scaled_sums = nullptr;
  int64_t rows = 0;
  float* y = nullptr;
  int64_t stride = 0;
  bool accumulate = false;
  float factor = 1.0f;          // of the products
  const float* bias = nullptr;  // [n] or null
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  PanelOrder order = PanelOrder::kTurns;
};

// One row of activations to be filled: floats always; the rest, which begins at the row's place in
// a tile (tiles.h), unless null.
struct ActivationRow {
  int64_t k = 0;
  float* floats = nullptr;
  float* ordered = nullptr;
  int64_t ordered_rows = 0;  // of the tile of `ordered`
  int8_t* codes = nullptr;
  int64_t tile_rows = 0;  // of the tile of codes and the next three
  float* scales = nullptr;
  int32_t* sums = nullptr;
  float* scaled_sums = nullptr;
};

// A query against one chunk of keys: it sees positions [begin, end) of the chunk, at least one.
struct ChunkQuery {
  const float* q;
  // Its result: [value_dim floats of sum p v][16 floats: maximum, sum of p, unused], where p is 2
  // to the power of (score - maximum) and scores are in units of log2(e).
  float* partial;
  int begin;
  int end;
  // Positions from here on do not lie where the chunk's pages say, but in `slots`.
  int own;
  const int32_t* slots;
};

inline constexpr int kMaxChunkQueries = 32;
inline constexpr int kPartialTail = 16;
struct ChunkShare {
  KvLayout layout;
  const std::byte* kv = nullptr;  // the plane
  int kv_head = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;  // 0: none
  // Pages of which no query sees a position before its own ones are null.
  const std::byte* keys[kAttentionChunk / kPagePositions] = {};
  const std::byte* values[kAttentionChunk / kPagePositions] = {};
  // Keys that will be read after these values, to be fetched meanwhile; null: not known.
  const std::byte* next[kAttentionChunk / kPagePositions] = {};
  int queries = 0;                     // at most kMaxChunkQueries
  ChunkQuery query[kMaxChunkQueries];  // those of one row side by side
};

// Channels [begin, begin + count) of one row of ShortConvArgs.
struct ShortConvRow {
  const float* const* inputs;  // [taps], each of all channels
  int taps;
  const float* weights;  // [taps][stride]
  int64_t stride;
  int64_t begin;
  int64_t count;
  float* y;           // [count]
  const float* bias;  // [stride]; null: zeros
  bool silu;
};

// One row of DeltaRuleArgs in one tile: 16 values.
struct DeltaRow {
  const float* state;  // [key_dim][16]
  int key_dim;
  const float* key;
  const float* query;
  const float* value;
  float decay;
  float beta;
  float* change;
  float* out;
  bool subtract;
};

struct CpuOps {
  void (*matmul)(const MatmulShare& share);
  void (*quantize)(const ActivationRow& row);
  void (*rms_norm)(const float* x, const float* weight, double eps, const ActivationRow& out);
  // `bias` may be null.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, double eps,
                     const ActivationRow& out);
  // One row of `heads` heads.
  void (*rms_norm_heads)(float* x, int heads, int head_dim, const float* weight, double eps);
  void (*add_rms_norm)(const float* y, int64_t n, const float* weight, double eps, float* residual);
  // activation(x), times `factor` unless that is null.
  void (*activate)(Activation kind, const float* x, const float* factor, const ActivationRow& out);
  void (*soft_cap)(float* x, int64_t count, float cap);
  // y += factor x.
  void (*add_scaled)(const float* x, float factor, int64_t n, float* y);
  // One row of `heads` heads.
  void (*rope)(float* x, int heads, int head_dim, int dimensions, RopeStyle style, const float* cos,
               const float* sin);
  void (*store_kv)(const KvLayout& layout, const float* k, const float* v, int32_t slot,
                   std::byte* kv);
  void (*attention_chunk)(const ChunkShare& share);
  // Adds `count` later partials, `stride` floats apart, to as many earlier ones.
  void (*attention_merge)(float* into, const float* from, int64_t count, int64_t stride,
                          int value_dim);
  // `out` [count][value_dim]; `sinks` [count], as AttentionArgs has them, or null.
  void (*attention_finish)(const float* partial, const float* sinks, float* out, int64_t count,
                           int64_t stride, int value_dim);
  // One row of Backend::top_k(). Returns the sum of e^(x - the largest).
  float (*top_k)(const float* x, int64_t n, int k, int32_t* ids, float* values);
  void (*peak)(const PeakShare& share);
  void (*short_conv)(const ShortConvRow& row);
  void (*delta_row)(const DeltaRow& row);
  // advance_tile() of kernels/state_layout.h.
  void (*advance_state)(const float* from, int key_dim, float decay, const float* key,
                        const float* change, float* to);
  // Rows of activations for weights of bytes that `matmul` takes as one tile, at most.
  int64_t most_tile_rows = kMaxTile;
};

// What is built on dot products of bytes, the others' part of the table left out.
struct DotOps {
  decltype(CpuOps::matmul) matmul;
  decltype(CpuOps::attention_chunk) attention_chunk;
  decltype(CpuOps::attention_merge) attention_merge;
  decltype(CpuOps::attention_finish) attention_finish;
  decltype(CpuOps::peak) peak;
};
const DotOps* avx512_dots();
const DotOps* avxvnni_dots();
// CpuOps::matmul of more rows than kMaxTile, by quantised weights; rows in tiles of kMaxWideTile.
void amx_matmul(const MatmulShare& share);

// Each is defined where isas_<family>.cc names it, and nowhere else.
const CpuOps* avx2_ops();
const CpuOps* avx512bw_ops();
const CpuOps* neon_ops();

}  // namespace aerie::kernels

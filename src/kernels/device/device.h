// A device that computes beside the processor: its memory, one stream of work, and the operations
// that a forward pass is made of there. The same sources are compiled twice (device_impl.cc): for
// NVIDIA GPUs, in a library of its own that is loaded where there is one, and for the emulator of
// kernels/simt/, which runs the same kernels on the processor.
//
// Work is put on the stream in the order of the calls and done later: what it reads must stay, and
// what it writes may not be looked at, until wait(). Errors stick: after one nothing is done any
// more, and wait() says what it was.
//
// Row invariance, as in backend.h: a row's bits depend on its own inputs alone. Every product cuts
// k into kSegments, by its shape alone; each segment is one chain of sums, the segments are added
// up in order.
//
// No heavy headers here, no exceptions: it is the border between libraries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/linear/linear_ops.h"

namespace aerie::device {

// Layouts of weights. Codes lie in the order in which a warp takes them: for each panel of 16
// outputs and each 64 of k, 16 bytes a lane at a time.
enum class MatrixKind : uint8_t {
  kBf16,    // bfloat16
  kBf16x2,  // two bfloat16 that add up to the weight: 16 bits of significand
  kQ4,      // (code - 8) * scale, a binary16 scale for each 32 of k
  kQ4K,     // code * d * s - dmin * m, 8-bit s and m for each 32, binary16 d and dmin for each 256
  kQ8,      // code * scale, int8; a binary16 scale for each 32
  kQ6K,     // (code - 32) * d * s, 6 bits; int8 s for each 16, binary16 d for each 256
  kFp4,     // 2 * E2M1 * scale, a bfloat16 scale for each 32 of k
};

inline constexpr int kPanel = 16;      // outputs side by side
inline constexpr int kStep = 64;       // of k: k is a multiple of it, padded with zeros
inline constexpr int kSegments = 16;   // of k
inline constexpr int kPage = 64;       // positions of a page of the cache
inline constexpr int kChunk = 256;     // positions of attention's unit of work
inline constexpr int kFewRows = 64;    // the most rows of products that take weights once
inline constexpr int kManyRows = 128;  // rows of a tile of the others; activations are padded to it

// A matrix of n outputs by k inputs, in device memory.
struct Matrix {
  MatrixKind kind = MatrixKind::kBf16;
  int n = 0;       // outputs
  int panels = 0;  // of them, the last one padded with zeros
  int steps = 0;   // k / kStep, rounded up
  const void* codes = nullptr;
  const void* scales = nullptr;  // of each 64 of k
  const void* supers = nullptr;  // of each 256 of k
  const float* bias = nullptr;   // [n] or null
  float factor = 1.0f;           // on the product
};

enum class Glu : uint8_t { kSilu, kGeluTanh, kGelu, kClampedSilu };  // kernels::Activation

// What an input of products is normed by, without having been: rows x are given as x * weight, and
// each product by 1 / sqrt(mean(x^2) + eps).
struct InputNorm {
  const float* squares = nullptr;  // [row][count]: sums of x^2 of each panel of x; null: no norm
  int count = 0;
  int stride = 0;
  int width = 0;  // elements of x
  float eps = 0.0f;
};

// What is made of a residual stream that has changed: the next input of products.
struct NextInput {
  const float* weight = nullptr;  // [width], of the norm to come
  uint16_t* out = nullptr;        // bfloat16 [row][stride]: x * weight
  int stride = 0;
  float* squares = nullptr;  // [row][squares_stride]
  int squares_stride = 0;
};

enum class Output : uint8_t {
  kStore,      // y = product
  kResidual,   // x += factor * product, and NextInput of it
  kGated,      // out = glu(product 0) * product 1 as bfloat16
  kActivated,  // out = glu(product) as bfloat16
};

struct Product {
  // One after the other; of kGated the gate and what it multiplies. All of one kind.
  Matrix w[3];
  int matrices = 1;
  const int32_t* rows = nullptr;  // in device memory: how many there are; no launch writes that
  int most_rows = 0;              // at least *rows: what is launched is for so many
  const uint16_t* x = nullptr;    // bfloat16 [row][x_stride]; zeros behind k up to kStep
  int x_stride = 0;
  InputNorm norm;
  Output output = Output::kStore;
  float* y = nullptr;  // kStore, kResidual: [row][y_stride]
  int y_stride = 0;
  float factor = 1.0f;    // on the whole
  float soft_cap = 0.0f;  // kStore: y = cap tanh(y / cap); 0: none
  NextInput next;         // kResidual
  uint16_t* out = nullptr;
  int out_stride = 0;
  Glu glu = Glu::kSilu;
  // Of more than kFewRows rows: ordered_bytes() of room, 16 bytes aligned; null: without.
  void* ordered = nullptr;
  // Of more than kFewRows rows: panels of a warp, 1 to 3 (tile_product.h); -1: group_product.h
  // where the device has code for it; 0: what is fastest, which may be either, or product.h of few
  // outputs. Bits do not depend on it.
  int tile_panels = 0;
};

// Of Product::ordered: x as groups of warps take it, and sums of it (ordered_rows.h).
inline constexpr int kOrderedRows = 64;  // of a block of it
inline constexpr int kOrderedRowBytes = kOrderedRows * kStep * 2;
inline constexpr int kOrderedSumBytes = kOrderedRows * 2 * 4;
constexpr int64_t ordered_bytes(int rows, int64_t k) {
  const int64_t tiles = (rows + kManyRows - 1) / kManyRows, steps = (k + kStep - 1) / kStep;
  return tiles *
         (kManyRows * 4 + kManyRows / kOrderedRows * steps * (kOrderedRowBytes + kOrderedSumBytes));
}

// A row of a pass, as attention and the cache take it.
struct PassRow {
  int32_t position = 0;
  int32_t slot = 0;       // where its key and value go: page * kPage + offset
  int32_t committed = 0;  // positions before it that its pages hold
  int32_t pages = 0;      // index of the first of them in Pass::indices
  int32_t tail = 0;       // index of the slots of positions committed .. position
  int32_t linear = 0;     // 1: these are where the pages put them
};

// Rows that share their pages and are linear or not together, side by side: attention takes them
// at once.
struct PassTile {
  int32_t first = 0;
  int32_t count = 0;
  int32_t least = 0, most = 0;  // of their positions
};

// What changes from pass to pass, in device memory; pointers stay.
struct Pass {
  const int32_t* counts = nullptr;  // by PassCount
  const PassRow* rows = nullptr;
  const PassTile* tiles = nullptr;
  const int32_t* wanted = nullptr;  // rows whose logits are wanted
  const int32_t* stated = nullptr;
  const int32_t* tapped = nullptr;
  const int32_t* indices = nullptr;  // pages and slots
};
enum PassCount {
  kRowCount,
  kTileCount,
  kWantedCount,
  kStatedCount,
  kTappedCount,
  kStateSequenceCount,
  kMoveCount,
  kPassCounts
};

inline constexpr int kMostHeadDim = 256;
inline constexpr int kWideHeadDim = 512;  // and this one
inline constexpr int kMostLatentDim = 576;

struct CacheShape {
  int kv_heads = 0;
  int head_dim = 0;  // a multiple of 16, at most kMostHeadDim, or kWideHeadDim, or of latents
  // KvLayout::value_prefix: if it is not 0 there is one head, and a slot has its key alone.
  int value_prefix = 0;

  bool operator==(const CacheShape&) const = default;
};

struct Place {  // queries, keys and values of products to where attention takes them
  Pass pass;
  int most_rows = 0;
  const float* qkv = nullptr;  // [row][queries, keys, values]
  int stride = 0;
  int heads = 0;
  int queries_apart = 0;  // heads of queries are so far from one another; 0: side by side
  CacheShape shape;       // no heads of keys: queries alone
  int values_apart = 0;   // from a head's key to its value; 0: that is the value, too
  const float* query_norm = nullptr;  // [head_dim]; null: none
  const float* key_norm = nullptr;
  bool whole_norms = false;  // of all heads together, with weights [heads][head_dim]
  bool value_norm = false;
  float limit = 0.0f;  // of what is behind the norms, and of values; 0: none
  float eps = 0.0f;
  // [row][cosines, sines], dimensions / 2 each, rows turns_stride apart; null: nothing turns.
  const float* turns = nullptr;
  int turns_stride = 0;
  int dimensions = 0;
  bool halves = true;         // RopeStyle::kHalves
  uint16_t* q = nullptr;      // binary16 [row][heads][head_dim]
  uint16_t* plane = nullptr;  // the layer's of the cache
};

// Queries and keys of latent attention (LatentAttention in model_config.h) to where attention takes
// them. What turns are all of its dimensions.
struct PlaceLatent {
  Pass pass;
  int most_rows = 0;
  int heads = 0, rank = 0, rope = 0;
  // Queries that were taken to the latent, [head * taken_apart + row][rank], and the rest of them:
  // of a row and head from row * turning_row + head * turning_head on.
  const float* taken = nullptr;
  int64_t taken_apart = 0;
  const float* turning = nullptr;
  int64_t turning_row = 0, turning_head = 0;
  // Rows latent_row apart: the latent, which is normed, then what turns of the key.
  const float* latent = nullptr;
  int64_t latent_row = 0;
  const float* norm = nullptr;  // [rank]
  float eps = 0.0f;
  const float* turns = nullptr;  // as Place's, of rope dimensions
  int turns_stride = 0;
  bool halves = true;
  uint16_t* q = nullptr;      // binary16 [row][heads][rank + rope]
  uint16_t* plane = nullptr;  // the layer's of the cache: [slot][rank + rope]
};

struct Attend {
  Pass pass;
  int first_tile = 0;                                  // of those that are taken
  int most_rows = 0, most_tiles = 0, most_chunks = 0;  // what is launched is for so many
  const uint16_t* q = nullptr;
  const uint16_t* plane = nullptr;
  int heads = 0;
  CacheShape shape;
  float scale = 1.0f;
  float soft_cap = 0.0f;
  int window = 0;
  const float* sinks = nullptr;
  float* partials = nullptr;    // partial_floats()
  unsigned* arrived = nullptr;  // arrival_counters(), zeros
  uint16_t* out = nullptr;      // bfloat16 [row][out_stride]
  int out_stride = 0;           // a multiple of 4; with a value_prefix of 8
  int tile_rows = 0;            // that a tile has at most; 0: most_tile_rows()
  // With a value_prefix: what heads give is so far apart, a multiple of 8. Such attention has no
  // cap and no sinks; its tiles are not looked at: most_tiles are rows, from first_tile on.
  int out_head = 0;
};
// Heads that such attention takes at once, at most and at least, and into how many parts it cuts a
// row's at most: as many times arrival_counters() are needed.
inline constexpr int kLatentHeads = 32, kFewLatentHeads = 8;
constexpr int latent_parts(int heads) {
  return (heads + kFewLatentHeads - 1) / kFewLatentHeads;
}
// Rows that a tile may have, of so many query heads to a head of keys.
int most_tile_rows(int heads_per_kv);
// Floats of Attend::partials for so many rows and chunks.
int64_t partial_floats(const CacheShape& shape, int heads, int rows, int chunks);
// Of Attend::arrived.
int64_t arrival_counters(const CacheShape& shape, int rows, int chunks);

inline constexpr int kMostExperts = 512;
inline constexpr int kMostUsedExperts = 32;  // of a row
inline constexpr int kMostExpertRows = 16;   // pairs of a tile

// Pairs of a row and an expert that it uses, sorted by expert and then by row: some side by side of
// one expert, which products take at once.
struct ExpertTile {
  int32_t expert = 0;
  int32_t first = 0, count = 0;  // pairs
};
// The most tiles that so many pairs can be in.
constexpr int most_expert_tiles(int pairs, int experts, int tile_rows) {
  const int all = pairs / tile_rows + (pairs < experts ? pairs : experts);
  return pairs < all ? pairs : all;
}

inline constexpr int kMostExpertGroups = 64;

// The experts that rows use: those of the largest scores, the largest first, of equals the first,
// NaN last; and what each weighs (ExpertRouter in blueprint.h).
struct Route {
  const int32_t* rows = nullptr;
  int most_rows = 0;
  const float* logits = nullptr;  // [row][stride]
  int stride = 0;
  int experts = 0;  // at most kMostExperts
  int used = 0;     // at most kMostUsedExperts, and experts
  // Scores are sigmoids of logits, with these [experts] added where experts and groups are compared
  // (null: none); else they are logits, and weights are softmax's.
  bool sigmoid = false;
  const float* corrections = nullptr;
  // Of so many groups of experts side by side, at most kMostExpertGroups, which divide them, the
  // best are looked into: those of the largest score, or of the largest sum of two.
  int groups = 1, used_groups = 1;
  bool by_best_two = false;
  // Weights are shares over the chosen, not over all; and their factor.
  bool normalized = false;
  float scale = 1.0f;
  int tile_rows = kMostExpertRows;  // the most pairs of a tile
  float* weights = nullptr;         // [row][used]
  int32_t* chosen = nullptr;        // [row][used]: experts
  int32_t* places = nullptr;        // [row][used]: pairs
  int32_t* pairs = nullptr;         // [pair]: its row
  ExpertTile* tiles = nullptr;      // most_expert_tiles()
  int32_t* tile_count = nullptr;
  // How many experts are used by some row, added to what is there or put in its place.
  int32_t* used_experts = nullptr;
  bool adds = false;
  unsigned* arrived = nullptr;  // one zero
};

// Products of pairs, each with its expert's matrix: of rows and most_rows nothing is taken, w is
// the first expert's, y and out are of pairs. kStore or kGated.
struct ExpertProduct {
  Product product;
  // By expert, in device memory, all of the kind and sizes of product.w; of kGated the gates and
  // what they multiply.
  const Matrix* experts[2] = {};
  int expert_count = 0;               // so many are brought near before it is known which are used
  const ExpertTile* tiles = nullptr;  // [most_tiles]
  const int32_t* tile_count = nullptr;
  int most_tiles = 0;             // what is launched is for so many
  int tile_rows = 0;              // their most pairs, at most kMostExpertRows
  const int32_t* from = nullptr;  // [pair]: its row of x and of norm; null: they are of pairs
  // No launch writes tiles, tile_count and from, so that matrices are asked for before the launch
  // ahead has ended.
  bool is_fixed = false;
};
// Shared memory that a block of such products needs.
int64_t expert_memory(MatrixKind kind);

// x += what a row's experts give, by their weights in the order of its choice, and what all rows
// use besides; and NextInput of x.
struct AddExperts {
  const int32_t* rows = nullptr;
  int most_rows = 0;
  int used = 0;
  const float* weights = nullptr;   // Route's
  const int32_t* places = nullptr;  // the same
  const float* y = nullptr;         // [pair][y_stride]
  int y_stride = 0;
  const float* shared = nullptr;  // [row][shared_stride]; null: there is none
  int shared_stride = 0;
  // Its factor, times the sigmoid of these, rows gates_stride apart, if they are there.
  float shared_scale = 1.0f;
  const float* shared_gates = nullptr;
  int gates_stride = 0;
  float* x = nullptr;
  int x_stride = 0;
  int width = 0;
  NextInput next;
};

// x = scale * (x + norm of (norm of what a feed-forward gives + norm of what a row's experts
// give)), and NextInput of x. The experts' sum is AddExperts's, of nothing else.
struct AddBeside {
  const int32_t* rows = nullptr;
  int most_rows = 0;
  int used = 0;
  const float* weights = nullptr;   // Route's
  const int32_t* places = nullptr;  // the same
  const float* y = nullptr;         // [pair][y_stride]
  int y_stride = 0;
  float* beside = nullptr;  // [row][beside_stride]: what the feed-forward gives; overwritten
  int beside_stride = 0;
  const float *beside_norm = nullptr, *expert_norm = nullptr, *norm = nullptr;  // [width]
  float eps = 0.0f;
  float scale = 1.0f;
  float* x = nullptr;
  int x_stride = 0;
  int width = 0;
  NextInput next;
};

struct Begin {  // NextInput of a residual stream
  const int32_t* rows = nullptr;
  int most_rows = 0;
  const int32_t* from = nullptr;  // rows of x; null: as they come
  const float* x = nullptr;
  int x_stride = 0;
  int width = 0;
  NextInput next;
};

// (x[from[i]] - mean) / sqrt(variance + eps) * weight + bias, as bfloat16 or as floats; by rows.
struct LayerNorm {
  const int32_t* rows = nullptr;
  int most_rows = 0;
  const int32_t* from = nullptr;  // rows of x; null: as they come
  const float* x = nullptr;
  int x_stride = 0;
  int width = 0;
  const float *weight = nullptr, *bias = nullptr;  // [width]
  float eps = 0.0f;
  uint16_t* out = nullptr;  // null: floats
  float* floats = nullptr;
  int out_stride = 0;  // of whichever it is
};

struct AddNormed {  // x = scale * (x + norm of y), and NextInput of x; by rows
  const int32_t* rows = nullptr;
  int most_rows = 0;
  const float* y = nullptr;
  int y_stride = 0;
  const float* weight = nullptr;
  float eps = 0.0f;
  float scale = 1.0f;
  float* x = nullptr;
  int x_stride = 0;
  int width = 0;
  NextInput next;
};

struct CopyRows {  // out[i] = x[from[i]], or its norm if there is a weight
  const int32_t* rows = nullptr;
  int most_rows = 0;
  const int32_t* from = nullptr;
  const float* x = nullptr;
  int x_stride = 0;
  int width = 0;
  const float* weight = nullptr;
  float eps = 0.0f;
  float* out = nullptr;
  int64_t out_stride = 0;
};

struct NarrowRows {  // out[i] = x[from[i]], or its norm if there is a weight, as bfloat16
  const int32_t* rows = nullptr;
  int most_rows = 0;
  const int32_t* from = nullptr;
  const float* x = nullptr;
  int64_t x_stride = 0;
  int width = 0;
  const float* weight = nullptr;
  float eps = 0.0f;
  uint16_t* out = nullptr;
  int out_stride = 0;
  int zeros = 0;  // that are written behind them
};

struct NarrowHeads {  // the same of parts of rows: out[row, head][n] = x[row, head][n] as bfloat16
  const int32_t* rows = nullptr;
  int most_rows = 0;
  int heads = 0, width = 0;
  const float* x = nullptr;
  int64_t x_row = 0, x_head = 0;  // how far apart rows and heads are
  uint16_t* out = nullptr;
  int64_t out_row = 0, out_head = 0;
};

struct MapRows {  // out = factor * f(x + bias), or out += that
  const int32_t* rows = nullptr;
  int most_rows = 0;
  const float* x = nullptr;
  int64_t x_stride = 0;
  int width = 0;
  const float* bias = nullptr;
  bool activates = false;
  Glu glu = Glu::kSilu;
  float factor = 1.0f;
  bool adds = false;
  float* out = nullptr;
  int64_t out_stride = 0;
};

struct GateRows {  // out = glu(x) * by as bfloat16
  const int32_t* rows = nullptr;
  int most_rows = 0;
  const float* x = nullptr;
  int x_stride = 0;
  const float* by = nullptr;
  int by_stride = 0;
  int width = 0;
  Glu glu = Glu::kSilu;
  uint16_t* out = nullptr;
  int out_stride = 0;
};

// x = factor * (norm of x + added_scale * added), each part of a row normed by itself, all with the
// same weights.
struct JoinInputs {
  const int32_t* rows = nullptr;
  int most_rows = 0;
  float* x = nullptr;  // [row][parts][width]
  int x_stride = 0;
  int parts = 0, width = 0;
  const float* weight = nullptr;  // [width]
  float eps = 0.0f;
  const float* added = nullptr;  // [row][parts][width]
  int added_stride = 0;
  float added_scale = 1.0f;
  float factor = 1.0f;
};

struct MoveEntries {  // of all planes, one after the other
  const int32_t* count = nullptr;
  const int32_t* pairs = nullptr;  // [count][from, to], slots
  uint16_t* const* planes = nullptr;
  int layers = 0;
  CacheShape shape;
};

struct Best {  // of each row of logits, the first of equals, NaN left out; -1: all are -infinity
  const int32_t* rows = nullptr;
  int most_rows = 0;
  const float* logits = nullptr;
  int stride = 0;
  int n = 0;
  float* part_values = nullptr;  // [row][kBestParts]
  int32_t* part_ids = nullptr;
  unsigned* arrived = nullptr;  // [row], zeros
  int32_t* ids = nullptr;
  float* values = nullptr;
};
inline constexpr int kBestParts = 32;

// The k largest of rows of logits, the largest first and of equals the first, NaN left out and
// infinity as the largest float; and the sum of e^(x - the largest) of all.
struct Top {
  const int32_t* rows = nullptr;
  int most_rows = 0;
  int each = 1;  // rows of logits of a row, `apart` floats from one another
  const float* logits = nullptr;
  int64_t stride = 0, apart = 0;
  int n = 0;
  int k = 1;                     // at most n
  float* part_values = nullptr;  // [row][each][kBestParts][k]
  int32_t* part_ids = nullptr;   // the same
  float* part_sums = nullptr;    // [row][each][kBestParts]
  unsigned* arrived = nullptr;   // [row][each], zeros
  float* out = nullptr;    // [row][each]: k ids, integers in the place of floats, k values, the sum
  int64_t out_stride = 0;  // of a row
};

// Inputs of rows that go on behind others: what those hand on, then the embedding of the best token
// that was found behind them.
struct NextRows {
  const int32_t* rows = nullptr;
  int most_rows = 0;
  const int32_t* behind = nullptr;  // [row]: which of those; negative: its row stays as it is
  const float* found = nullptr;     // Top::out of them, with each == 1
  int64_t found_stride = 0;
  const float* handed = nullptr;  // [of those][handed_width], found_stride apart
  int handed_width = 0;
  // [tokens][width]: embeddings, in bfloat16 or in floats; the other is null.
  const uint16_t* table = nullptr;
  const float* wide_table = nullptr;
  int tokens = 0;  // at least Top::n
  int width = 0;
  float* out = nullptr;  // [row][out_stride]
  int64_t out_stride = 0;
};

struct Info {
  char name[128] = "";
  int64_t memory = 0, free = 0;  // bytes
  int processors = 0;            // streaming multiprocessors
  int major = 0, minor = 0;      // compute capability
  int64_t shared_bytes = 0;      // shared memory that a block may have
  bool emulated = false;
};

struct Graph;

class Device {
 public:
  virtual ~Device() = default;
  virtual Info info() = 0;

  // Device memory, and memory of the host that copies go from and to; null: there is not so much.
  virtual void* allocate(size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  virtual void* allocate_host(size_t bytes) = 0;
  virtual void release_host(void* memory) = 0;

  virtual void copy_in(void* to, const void* from, size_t bytes) = 0;
  virtual void copy_out(void* to, const void* from, size_t bytes) = 0;
  virtual void clear(void* memory, size_t bytes) = 0;
  // All that was put on the stream is done; false: error().
  virtual bool wait() = 0;
  // The same of what had been put on it when mark() was called last: the device goes on with the
  // rest. Not while work is written down.
  virtual void mark() = 0;
  virtual bool wait_for_mark() = 0;
  // "" while there was none.
  virtual const char* error() = 0;

  // Between these, work is written down instead of put on the stream. null: error(), or where that
  // is "", there is no memory for a graph.
  virtual void begin_graph() = 0;
  virtual Graph* end_graph() = 0;
  virtual void launch(Graph* graph) = 0;
  virtual void destroy(Graph* graph) = 0;

  virtual void product(const Product& args) = 0;
  virtual void place(const Place& args) = 0;
  virtual void place_latent(const PlaceLatent& args) = 0;
  virtual void attend(const Attend& args) = 0;
  virtual void begin(const Begin& args) = 0;
  virtual void layer_norm(const LayerNorm& args) = 0;
  virtual void add_normed(const AddNormed& args) = 0;
  virtual void copy_rows(const CopyRows& args) = 0;
  virtual void narrow_rows(const NarrowRows& args) = 0;
  virtual void narrow_heads(const NarrowHeads& args) = 0;
  virtual void map_rows(const MapRows& args) = 0;
  virtual void gate_rows(const GateRows& args) = 0;
  virtual void join_inputs(const JoinInputs& args) = 0;
  virtual void move_entries(const MoveEntries& args) = 0;
  virtual void best(const Best& args) = 0;
  virtual void top(const Top& args) = 0;
  virtual void next_rows(const NextRows& args) = 0;
  virtual void route(const Route& args) = 0;
  virtual void expert_product(const ExpertProduct& args) = 0;
  virtual void add_experts(const AddExperts& args) = 0;
  virtual void add_beside(const AddBeside& args) = 0;
  virtual void convolve(const Convolve& args) = 0;
  virtual void scan_states(const ScanStates& args) = 0;
  virtual void gate_heads(const GateHeads& args) = 0;
  virtual void gate_groups(const GateGroups& args) = 0;
  virtual void move_states(const MoveStates& args) = 0;

  // Seconds that the stream takes for what is put on it between these; waits.
  virtual void start_clock() = 0;
  virtual double stop_clock() = 0;
  // Whether the device's own time for graphs is taken, which costs some itself: of the last two
  // before each wait. The seconds of those so far.
  virtual void time_graphs(bool timed) = 0;
  virtual double graph_seconds() = 0;
};

}  // namespace aerie::device

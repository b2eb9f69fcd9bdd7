// What a device is told of a pass: rows, tiles, pages and slots, embeddings, cosines and sines; put
// together in memory of the host and brought over in one copy.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/forward_batch.h"
#include "kernels/device/device.h"
#include "model/device/device_memory.h"
#include "model/device/pass/pass_indices.h"
#include "model/device/pass/state_input.h"
#include "model/rope_table.h"
#include "model/row_paths.h"

namespace aerie {

struct PassLimits {
  int rows = 0;
  int wanted = 0;     // rows that want logits, and states
  int positions = 0;  // of a sequence
  int hidden = 0;
  int tile_rows = 1;  // device::most_tile_rows()
  int extra = 0;      // floats of a row besides, at most
  // Whether the stream that enters the layers comes from the host; else it is made on the device.
  bool sends_stream = true;
  bool chains = false;   // whether layers see whole chains (LayerPlan::sees_chain)
  int state_planes = 0;  // layers that keep states
  int taps = 0;          // of their convolution
};

// So many as a graph of a pass of `n` is for: a power of two, or what the limit is.
int graph_rows(int n, int limit);

// How much of a pass there is.
struct PassSizes {
  int rows = 0, tiles = 0, wanted = 0, stated = 0, tapped = 0, chunks = 0;
  int state_sequences = 0;  // of layers that keep states

  // Each becomes a power of two, or what the limit is.
  void round_up(const PassLimits& limits);

  auto operator<=>(const PassSizes&) const = default;
};

// A pass that follows another one without the host between them: what its rows are behind is the
// outputs of that. Rows of sequences of the first pass, with the same pages, no more than rows of
// that want logits.
struct PassLevel {
  const ForwardBatch* batch = nullptr;  // no row wants taps
  std::span<const int32_t> behind;      // [row]: of the rows of the pass before that want logits
};

class PassInput {
 public:
  static Expected<PassInput> create(device::Device& device, const PassLimits& limits,
                                    std::span<const RopeConfig> ropes);

  // Requires a batch within the limits; kInternal if its paths are longer than there is room for.
  // Row r's stream, if it is sent, is to be filled at row(r) then, and so many floats besides at
  // extra(r). Where things lie depends on how many rows there are, rounded up as PassShape has it,
  // and on the floats besides.
  Expected<PassSizes> build(const ForwardBatch& batch, int extra = 0) {
    return build(batch, extra, {});
  }
  // The same with levels behind it, which come over in the same copy, without floats besides. Where
  // things lie depends on how many levels there are, and on how many rows of the pass want logits,
  // too: at most device::kFewRows. Requires that allow_levels() made room for so many levels,
  // before the first pass; no layer keeps states.
  Expected<PassSizes> build(const ForwardBatch& batch, int extra,
                            std::span<const PassLevel> levels);
  Status allow_levels(int levels);
  int64_t level_bytes() const;  // of the device's memory, for one
  // Of each row of the pass that was built, which of the rows of found tokens its own is behind;
  // negative: its token is known, and its stream filled.
  void set_found(std::span<const int32_t> rows);
  // Behind it, in a pass through layers that keep states: what they are told (StateInput).
  Expected<PassSizes> build_states(const ForwardBatch& batch, const KvCache& cache,
                                   std::span<const int> planes);
  void advance_states(KvCache& cache, std::span<const int> planes) const {
    states_.advance(cache, planes);
  }
  // What is asked for below is of the pass (0), or of its n-th level (n).
  void select(int part) { part_ = static_cast<size_t>(part); }
  const PassSizes& sizes() const { return part().sizes; }
  float* row(int r) { return host_floats() + static_cast<int64_t>(r) * stride(); }
  float* extra(int r) { return row(r) + extra_at_; }
  // Puts the copy on the stream; memory of the host is not touched again before the pass is over.
  void send();

  const PassLimits& limits() const { return limits_; }
  // In device memory. The stream of row r is row r of stream(), stream_stride() floats apart; what
  // is there besides is stride() floats apart.
  const device::Pass& pass() const { return part().pass; }
  // Of a level: PassLevel::behind.
  const int32_t* behind() const { return part().pass.tapped; }
  // Of the pass: set_found().
  const int32_t* found() const { return memory_.as<int32_t>() + parts_.front().found_at; }
  // The same for layers that see whole chains: rows see as far as the last one of their chain. Rows
  // lie where those of pass() do.
  const device::Pass& chains() const { return part().chains; }
  // Of the layer of this number among those that keep states, of the pass.
  device::StatePass states(int number) const {
    device::StatePass pass = states_.pass(number);
    pass.row_count = count(device::kRowCount);
    pass.sequence_count = count(device::kStateSequenceCount);
    pass.indices = part().pass.indices;
    return pass;
  }
  const int32_t* count(device::PassCount which) const { return pass().counts + which; }
  float* stream() const { return limits_.sends_stream ? floats() : stream_.as<float>(); }
  int stream_stride() const { return limits_.sends_stream ? stride() : limits_.hidden; }
  int stride() const { return part().stride; }
  float* extra() const { return floats() + extra_at_; }
  // Of a rope's number: for device::Place.
  const float* turns(int rope) const { return floats() + turns_at_[static_cast<size_t>(rope)]; }
  // Device memory of these sizes.
  static int64_t bytes(const PassLimits& limits, std::span<const RopeConfig> ropes);

 private:
  // A pass, in integers or floats from the beginning.
  struct Part {
    int64_t counts_at = 0, rows_at = 0, tiles_at = 0, wanted_at = 0, stated_at = 0, tapped_at = 0,
            found_at = 0, chain_counts_at = 0, chain_rows_at = 0, chain_tiles_at = 0, floats_at = 0;
    int stride = 0;
    device::Pass pass, chains;
    PassSizes sizes;
  };

  PassInput(device::Device& device, const PassLimits& limits)
      : device_(&device), limits_(limits), states_(limits.rows, limits.taps, limits.state_planes) {}
  Part& part() { return parts_[part_]; }
  const Part& part() const { return parts_[part_]; }
  float* host_floats() { return staged_.as<float>() + part().floats_at; }
  float* floats() const { return memory_.as<float>() + part().floats_at; }
  int64_t place_part(int64_t begin, int rows, int extra, int most_rows);
  void point();
  Status build_part(const ForwardBatch& batch);
  Status add_rows(const ForwardBatch& batch);
  Status add_pages(const ForwardBatch& batch);
  void add_chains(const ForwardBatch& batch);
  int add_tiles(int64_t rows_at, int64_t tiles_at);
  void add_wishes(const ForwardBatch& batch);
  int32_t* host_ints(int64_t at) { return staged_.as<int32_t>() + at; }

  device::Device* device_;
  PassLimits limits_;
  std::vector<RopeTable> tables_;
  std::vector<int> turns_at_;  // [rope]: in a row's floats
  int extra_at_ = 0;           // the same
  std::vector<Part> parts_;    // the pass, then levels
  size_t part_ = 0;
  int64_t indices_at_ = 0;  // of all parts
  DeviceMemory staged_, memory_, stream_;
  std::vector<RowPaths> paths_;  // one
  std::span<const kernels::AttentionRow> attention_rows_;
  std::vector<int32_t> pages_at_;  // [sequence], scratch
  // Of the pass: where the pages of its sequences are.
  std::vector<std::pair<const int32_t*, int32_t>> known_pages_;
  PassIndices indices_;
  StateInput states_;
};

}  // namespace aerie

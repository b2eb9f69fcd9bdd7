#include "model/device/pass/pass_input.h"

#include <algorithm>
#include <bit>

#include "base/errors.h"

namespace aerie {
namespace {

constexpr int64_t kRowInts = sizeof(device::PassRow) / sizeof(int32_t);
constexpr int64_t kTileInts = sizeof(device::PassTile) / sizeof(int32_t);

constexpr int64_t aligned(int64_t n) {
  return (n + 3) / 4 * 4;
}

// Floats of a row.
int row_floats(const PassLimits& limits, std::span<const RopeConfig> ropes, int extra) {
  int64_t floats = limits.sends_stream ? limits.hidden : 0;
  for (const RopeConfig& rope : ropes) floats += rope.dimensions;
  return static_cast<int>(aligned(floats) + aligned(extra));
}

// Ancestors of earlier passes that a row may have.
constexpr int64_t kMostAbove = 256;

// Pages of every sequence, and the slots of the rows of trees: each row's own path at most.
int64_t most_indices(const PassLimits& limits) {
  const int64_t pages = limits.positions / kernels::kPagePositions + 2;
  const int64_t states =
      limits.state_planes > 0 ? StateInput::most_indices(limits.rows, limits.taps) : 0;
  return limits.rows * (pages + limits.rows + kMostAbove) + states;
}

// Of what is said of rows, their floats apart.
int64_t row_ints(const PassLimits& limits, int64_t rows) {
  const int64_t seen = device::kPassCounts + rows * (kRowInts + kTileInts);
  return aligned((limits.chains ? 2 : 1) * seen + rows * 3 +
                 StateInput::ints(rows, limits.state_planes));
}

int64_t all_ints(const PassLimits& limits, std::span<const RopeConfig> ropes) {
  return row_ints(limits, limits.rows) +
         limits.rows * int64_t{row_floats(limits, ropes, limits.extra)} + most_indices(limits);
}

}  // namespace

int graph_rows(int n, int limit) {
  return n == 0 ? 0 : std::min(limit, static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))));
}

int64_t PassInput::bytes(const PassLimits& limits, std::span<const RopeConfig> ropes) {
  const int64_t stream = limits.sends_stream ? 0 : int64_t{limits.rows} * limits.hidden;
  return (all_ints(limits, ropes) + stream) * 4;
}

Expected<PassInput> PassInput::create(device::Device& device, const PassLimits& limits,
                                      std::span<const RopeConfig> ropes) {
  PassInput input(device, limits);
  int at = limits.sends_stream ? limits.hidden : 0;
  for (const RopeConfig& rope : ropes) {
    input.tables_.emplace_back(rope, limits.positions);
    input.turns_at_.push_back(at);
    at += rope.dimensions;
  }
  input.extra_at_ = static_cast<int>(aligned(at));
  const auto all = static_cast<size_t>(all_ints(limits, ropes)) * sizeof(int32_t);
  AERIE_ASSIGN_OR_RETURN(input.staged_,
                         DeviceMemory::allocate(device, all, "passes", DeviceMemory::Of::kHost));
  AERIE_ASSIGN_OR_RETURN(input.memory_, DeviceMemory::allocate(device, all, "passes"));
  if (!limits.sends_stream) {
    const auto stream = static_cast<size_t>(limits.rows) * static_cast<size_t>(limits.hidden);
    AERIE_ASSIGN_OR_RETURN(input.stream_,
                           DeviceMemory::allocate(device, stream * sizeof(float), "passes"));
  }
  input.indices_.set_room(most_indices(limits));
  input.paths_.emplace_back(limits.rows);
  return input;
}

// Indices come last: how many there are no graph knows.
void PassInput::place_parts(int rows, int extra) {
  const int64_t room = rows <= device::kFewRows
                           ? graph_rows(rows, limits_.rows)
                           : std::min(limits_.rows, rounded_up(rows, device::kFewRows));
  stride_ = extra_at_ + static_cast<int>(aligned(extra));
  rows_at_ = device::kPassCounts;
  tiles_at_ = rows_at_ + room * kRowInts;
  wanted_at_ = tiles_at_ + room * kTileInts;
  stated_at_ = wanted_at_ + room;
  tapped_at_ = stated_at_ + room;
  chain_counts_at_ = tapped_at_ + room;
  chain_rows_at_ = chain_counts_at_ + device::kPassCounts;
  chain_tiles_at_ = chain_rows_at_ + room * kRowInts;
  const int64_t behind_chains = chain_tiles_at_ + room * kTileInts;
  states_.place(memory_.as<int32_t>(), limits_.chains ? behind_chains : chain_counts_at_, room);
  floats_at_ = row_ints(limits_, room);
  indices_at_ = floats_at_ + room * stride_;
  const auto* base = memory_.as<int32_t>();
  pass_.counts = base;
  pass_.rows = reinterpret_cast<const device::PassRow*>(base + rows_at_);
  pass_.tiles = reinterpret_cast<const device::PassTile*>(base + tiles_at_);
  pass_.wanted = base + wanted_at_;
  pass_.stated = base + stated_at_;
  pass_.tapped = base + tapped_at_;
  pass_.indices = base + indices_at_;
  if (!limits_.chains) return;
  chains_ = pass_;
  chains_.counts = base + chain_counts_at_;
  chains_.rows = reinterpret_cast<const device::PassRow*>(base + chain_rows_at_);
  chains_.tiles = reinterpret_cast<const device::PassTile*>(base + chain_tiles_at_);
}

Status PassInput::add_rows(const ForwardBatch& batch) {
  attention_rows_ = paths_.front().build(batch);
  indices_.start(host_ints(indices_at_));
  pages_at_.clear();
  for (const BatchSequence& sequence : batch.sequences) {
    AERIE_ASSIGN_OR_RETURN(pages_at_.emplace_back(), indices_.add(sequence.pages));
  }
  auto* rows = reinterpret_cast<device::PassRow*>(host_ints(rows_at_));
  const int32_t* run = nullptr;  // of slots that the row before has, at its beginning
  int64_t run_at = 0, run_length = 0;
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const kernels::AttentionRow& from = attention_rows_[r];
    device::PassRow& to = rows[r];
    to.position = from.position;
    to.slot = batch.rows[r].slot;
    to.committed = from.committed;
    to.pages = pages_at_[static_cast<size_t>(from.group)];
    to.linear = from.linear ? 1 : 0;
    to.tail = 0;
    if (from.linear) continue;
    const int64_t length = from.position - from.committed + 1;
    if (from.tail != run) {
      run = from.tail;
      run_at = indices_.used();
      run_length = 0;
    }
    // Rows of a chain go on with the run that the one before it began.
    AERIE_RETURN_IF_ERROR(indices_.check_room(length - run_length));
    for (; run_length < length; ++run_length) indices_.add(run[run_length]);
    to.tail = static_cast<int32_t>(run_at);
  }
  return {};
}

// Rows of a chain share the slots of their ancestors, so each may have the last one's.
void PassInput::add_chains(const ForwardBatch& batch) {
  const auto* rows = reinterpret_cast<const device::PassRow*>(host_ints(rows_at_));
  auto* chains = reinterpret_cast<device::PassRow*>(host_ints(chain_rows_at_));
  std::copy_n(rows, sizes_.rows, chains);
  for (int r = sizes_.rows - 1; r > 0; --r) {
    const int32_t parent = batch.rows[static_cast<size_t>(r)].parent;
    if (parent < 0) continue;
    chains[parent] = chains[r];
    chains[parent].slot = rows[parent].slot;
  }
}

// How many there are.
int PassInput::add_tiles(int64_t rows_at, int64_t tiles_at) {
  auto* rows = reinterpret_cast<const device::PassRow*>(host_ints(rows_at));
  auto* tiles = reinterpret_cast<device::PassTile*>(host_ints(tiles_at));
  int count = 0, most = 0;
  for (int r = 0; r < sizes_.rows; ++r) {
    const device::PassRow& row = rows[r];
    const bool goes_on = r > 0 &&
                         attention_rows_[static_cast<size_t>(r)].group ==
                             attention_rows_[static_cast<size_t>(r - 1)].group &&
                         row.linear == rows[r - 1].linear &&
                         tiles[count - 1].count < limits_.tile_rows;
    if (!goes_on) tiles[count++] = {r, 0, row.position, row.position};
    device::PassTile& tile = tiles[count - 1];
    ++tile.count;
    tile.least = std::min(tile.least, row.position);
    tile.most = std::max(tile.most, row.position);
    most = std::max(most, row.position);
  }
  sizes_.tiles = std::max(sizes_.tiles, count);
  sizes_.chunks = std::max(sizes_.chunks, most / device::kChunk + 1);
  return count;
}

void PassInput::add_wishes(const ForwardBatch& batch) {
  sizes_.wanted = sizes_.stated = sizes_.tapped = 0;
  for (int r = 0; r < sizes_.rows; ++r) {
    const BatchRow& row = batch.rows[static_cast<size_t>(r)];
    if (row.wants_logits) host_ints(wanted_at_)[sizes_.wanted++] = r;
    if (row.wants_state) host_ints(stated_at_)[sizes_.stated++] = r;
    if (row.wants_taps) host_ints(tapped_at_)[sizes_.tapped++] = r;
  }
}

Expected<PassSizes> PassInput::build(const ForwardBatch& batch, int extra) {
  sizes_.rows = batch.size();
  place_parts(sizes_.rows, extra);
  AERIE_RETURN_IF_ERROR(add_rows(batch));
  sizes_.tiles = sizes_.chunks = sizes_.state_sequences = 0;
  int32_t* counts = host_ints(0);
  counts[device::kTileCount] = add_tiles(rows_at_, tiles_at_);
  add_wishes(batch);
  counts[device::kRowCount] = sizes_.rows;
  counts[device::kWantedCount] = sizes_.wanted;
  counts[device::kStatedCount] = sizes_.stated;
  counts[device::kTappedCount] = sizes_.tapped;
  if (limits_.chains) {
    add_chains(batch);
    int32_t* of_chains = host_ints(chain_counts_at_);
    of_chains[device::kTileCount] = add_tiles(chain_rows_at_, chain_tiles_at_);
    std::copy_n(counts, device::kTileCount, of_chains);
    std::copy_n(counts + device::kTileCount + 1, device::kPassCounts - device::kTileCount - 1,
                of_chains + device::kTileCount + 1);
  }
  for (size_t i = 0; i < tables_.size(); ++i) {
    const int pairs = tables_[i].pairs();
    for (int r = 0; r < sizes_.rows; ++r) {
      float* to = row(r) + turns_at_[i];
      tables_[i].fill(batch.rows[static_cast<size_t>(r)].position, to, to + pairs);
    }
  }
  return sizes_;
}

Expected<PassSizes> PassInput::build_states(const ForwardBatch& batch, const KvCache& cache,
                                            std::span<const int> planes) {
  AERIE_ASSIGN_OR_RETURN(sizes_.state_sequences,
                         states_.build(batch, cache, planes, host_ints(0), indices_));
  host_ints(0)[device::kStateSequenceCount] = sizes_.state_sequences;
  return sizes_;
}

void PassInput::send() {
  device_->copy_in(memory_.as<void>(), staged_.as<void>(),
                   static_cast<size_t>(indices_at_ + indices_.used()) * sizeof(int32_t));
}

}  // namespace aerie

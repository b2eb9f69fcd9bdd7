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
  return aligned((limits.chains ? 2 : 1) * seen + rows * 4 +
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
  input.parts_.resize(1);
  return input;
}

int64_t PassInput::level_bytes() const {
  const int64_t rows = std::min(device::kFewRows, limits_.rows);
  return (row_ints(limits_, rows) + rows * (aligned(extra_at_) + kMostAbove)) * 4;
}

Status PassInput::allow_levels(int levels) {
  const int64_t rows = std::min(device::kFewRows, limits_.rows);
  const size_t all = memory_.size() + static_cast<size_t>(levels * level_bytes());
  AERIE_ASSIGN_OR_RETURN(DeviceMemory staged,
                         DeviceMemory::allocate(*device_, all, "passes", DeviceMemory::Of::kHost));
  AERIE_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::allocate(*device_, all, "passes"));
  // Work on the old ones may not have been done.
  if (!device_->wait()) return internal_error("{}", device_->error());
  staged_ = std::move(staged);
  memory_ = std::move(memory);
  indices_.set_room(most_indices(limits_) + levels * rows * kMostAbove);
  parts_.reserve(static_cast<size_t>(levels) + 1);
  return {};
}

// With room for so many rows. Where it ends.
int64_t PassInput::place_part(int64_t begin, int rows, int extra, int most_rows) {
  const int64_t room = most_rows <= device::kFewRows
                           ? graph_rows(most_rows, limits_.rows)
                           : std::min(limits_.rows, rounded_up(most_rows, device::kFewRows));
  Part& p = part();
  p.sizes.rows = rows;
  p.stride = extra_at_ + static_cast<int>(aligned(extra));
  p.counts_at = begin;
  p.rows_at = begin + device::kPassCounts;
  p.tiles_at = p.rows_at + room * kRowInts;
  p.wanted_at = p.tiles_at + room * kTileInts;
  p.stated_at = p.wanted_at + room;
  p.tapped_at = p.stated_at + room;
  p.found_at = p.tapped_at + room;
  p.chain_counts_at = p.found_at + room;
  p.chain_rows_at = p.chain_counts_at + device::kPassCounts;
  p.chain_tiles_at = p.chain_rows_at + room * kRowInts;
  const int64_t behind_chains = p.chain_tiles_at + room * kTileInts;
  // Of the pass: rows of levels go through no layers that keep states.
  if (part_ == 0) {
    states_.place(memory_.as<int32_t>(), limits_.chains ? behind_chains : p.chain_counts_at, room);
  }
  p.floats_at = begin + row_ints(limits_, room);
  return p.floats_at + room * p.stride;
}

void PassInput::point() {
  Part& p = part();
  const auto* base = memory_.as<int32_t>();
  p.pass.counts = base + p.counts_at;
  p.pass.rows = reinterpret_cast<const device::PassRow*>(base + p.rows_at);
  p.pass.tiles = reinterpret_cast<const device::PassTile*>(base + p.tiles_at);
  p.pass.wanted = base + p.wanted_at;
  p.pass.stated = base + p.stated_at;
  p.pass.tapped = base + p.tapped_at;
  p.pass.indices = base + indices_at_;
  if (!limits_.chains) return;
  p.chains = p.pass;
  p.chains.counts = base + p.chain_counts_at;
  p.chains.rows = reinterpret_cast<const device::PassRow*>(base + p.chain_rows_at);
  p.chains.tiles = reinterpret_cast<const device::PassTile*>(base + p.chain_tiles_at);
}

// Those of a level's sequences are there already.
Status PassInput::add_pages(const ForwardBatch& batch) {
  const bool is_level = part_ > 0, has_levels = parts_.size() > 1;
  pages_at_.clear();
  for (const BatchSequence& sequence : batch.sequences) {
    if (is_level) {
      const auto known = std::ranges::find(known_pages_, sequence.pages.data(),
                                           &std::pair<const int32_t*, int32_t>::first);
      if (known == known_pages_.end()) {
        return internal_error("a level has a sequence that the pass before it has not");
      }
      pages_at_.push_back(known->second);
      continue;
    }
    AERIE_ASSIGN_OR_RETURN(pages_at_.emplace_back(), indices_.add(sequence.pages));
    if (has_levels) known_pages_.emplace_back(sequence.pages.data(), pages_at_.back());
  }
  return {};
}

Status PassInput::add_rows(const ForwardBatch& batch) {
  attention_rows_ = paths_.front().build(batch);
  AERIE_RETURN_IF_ERROR(add_pages(batch));
  auto* rows = reinterpret_cast<device::PassRow*>(host_ints(part().rows_at));
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
  Part& p = part();
  const auto* rows = reinterpret_cast<const device::PassRow*>(host_ints(p.rows_at));
  auto* chains = reinterpret_cast<device::PassRow*>(host_ints(p.chain_rows_at));
  std::copy_n(rows, p.sizes.rows, chains);
  for (int r = p.sizes.rows - 1; r > 0; --r) {
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
  PassSizes& sizes = part().sizes;
  int count = 0, most = 0;
  for (int r = 0; r < sizes.rows; ++r) {
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
  sizes.tiles = std::max(sizes.tiles, count);
  sizes.chunks = std::max(sizes.chunks, most / device::kChunk + 1);
  return count;
}

void PassInput::add_wishes(const ForwardBatch& batch) {
  Part& p = part();
  p.sizes.wanted = p.sizes.stated = p.sizes.tapped = 0;
  for (int r = 0; r < p.sizes.rows; ++r) {
    const BatchRow& row = batch.rows[static_cast<size_t>(r)];
    if (row.wants_logits) host_ints(p.wanted_at)[p.sizes.wanted++] = r;
    if (row.wants_state) host_ints(p.stated_at)[p.sizes.stated++] = r;
    if (row.wants_taps) host_ints(p.tapped_at)[p.sizes.tapped++] = r;
  }
}

// Of the part that was placed last.
Status PassInput::build_part(const ForwardBatch& batch) {
  point();
  AERIE_RETURN_IF_ERROR(add_rows(batch));
  Part& p = part();
  p.sizes.tiles = p.sizes.chunks = p.sizes.state_sequences = 0;
  int32_t* counts = host_ints(p.counts_at);
  counts[device::kTileCount] = add_tiles(p.rows_at, p.tiles_at);
  add_wishes(batch);
  counts[device::kRowCount] = p.sizes.rows;
  counts[device::kWantedCount] = p.sizes.wanted;
  counts[device::kStatedCount] = p.sizes.stated;
  counts[device::kTappedCount] = p.sizes.tapped;
  if (limits_.chains) {
    add_chains(batch);
    int32_t* of_chains = host_ints(p.chain_counts_at);
    of_chains[device::kTileCount] = add_tiles(p.chain_rows_at, p.chain_tiles_at);
    std::copy_n(counts, device::kTileCount, of_chains);
    std::copy_n(counts + device::kTileCount + 1, device::kPassCounts - device::kTileCount - 1,
                of_chains + device::kTileCount + 1);
  }
  for (size_t i = 0; i < tables_.size(); ++i) {
    const int pairs = tables_[i].pairs();
    for (int r = 0; r < p.sizes.rows; ++r) {
      float* to = row(r) + turns_at_[i];
      tables_[i].fill(batch.rows[static_cast<size_t>(r)].position, to, to + pairs);
    }
  }
  return {};
}

// Indices come last: how many there are no graph knows.
Expected<PassSizes> PassInput::build(const ForwardBatch& batch, int extra,
                                     std::span<const PassLevel> levels) {
  parts_.resize(1 + levels.size());
  select(0);
  indices_at_ = place_part(0, batch.size(), extra, batch.size());
  // Levels have the same room each, so that where things lie does not depend on which rows end.
  const auto most = levels.empty() ? 0 : std::ranges::count_if(batch.rows, &BatchRow::wants_logits);
  for (const PassLevel& level : levels) {
    ++part_;
    indices_at_ = place_part(indices_at_, level.batch->size(), 0, static_cast<int>(most));
  }
  indices_.start(host_ints(indices_at_));
  known_pages_.clear();
  select(0);
  AERIE_RETURN_IF_ERROR(build_part(batch));
  for (const PassLevel& level : levels) {
    ++part_;
    AERIE_RETURN_IF_ERROR(build_part(*level.batch));
    std::ranges::copy(level.behind, host_ints(part().tapped_at));
  }
  select(0);
  return part().sizes;
}

Expected<PassSizes> PassInput::build_states(const ForwardBatch& batch, const KvCache& cache,
                                            std::span<const int> planes) {
  PassSizes& sizes = part().sizes;
  AERIE_ASSIGN_OR_RETURN(sizes.state_sequences,
                         states_.build(batch, cache, planes, host_ints(0), indices_));
  host_ints(0)[device::kStateSequenceCount] = sizes.state_sequences;
  return sizes;
}

void PassInput::set_found(std::span<const int32_t> rows) {
  std::ranges::copy(rows, host_ints(parts_.front().found_at));
}

void PassInput::send() {
  device_->copy_in(memory_.as<void>(), staged_.as<void>(),
                   static_cast<size_t>(indices_at_ + indices_.used()) * sizeof(int32_t));
}

}  // namespace aerie

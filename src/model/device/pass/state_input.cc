#include "model/device/pass/state_input.h"

#include <algorithm>
#include <cassert>

#include "base/errors.h"

namespace aerie {
namespace {

constexpr int64_t kStateRowInts = sizeof(device::PassStateRow) / sizeof(int32_t);
constexpr int64_t kStateSequenceInts = sizeof(device::PassStateSequence) / sizeof(int32_t);

// Records of earlier passes that a sequence's rows may go on from, on average.
constexpr int64_t kMostBefore = 128;

}  // namespace

StateInput::StateInput(int rows, int taps, int planes)
    : most_inputs_(static_cast<size_t>(std::max(1, taps) - 1)), plan_(planes > 0 ? rows : 0) {
  sources_.reserve(static_cast<size_t>(rows) + kMostBefore);
  records_.reserve(static_cast<size_t>(rows) + kMostBefore);
}

int64_t StateInput::ints(int64_t room, int planes) {
  return planes > 0 ? room * (kStateRowInts + kStateSequenceInts + planes) : 0;
}

// A row's number twice, its inputs and its path; what its sequence brings into the state.
int64_t StateInput::most_indices(int64_t rows, int taps) {
  return rows * (2 + taps + rows + 2 * kMostBefore);
}

void StateInput::place(const int32_t* base, int64_t at, int64_t room) {
  base_ = base;
  room_ = room;
  rows_at_ = at;
  sequences_at_ = rows_at_ + room * kStateRowInts;
  bases_at_ = sequences_at_ + room * kStateSequenceInts;
}

device::StatePass StateInput::pass(int number) const {
  device::StatePass pass;
  pass.rows = reinterpret_cast<const device::PassStateRow*>(base_ + rows_at_);
  pass.sequences = reinterpret_cast<const device::PassStateSequence*>(base_ + sequences_at_);
  pass.bases = base_ + bases_at_ + number * room_;
  return pass;
}

// So many of the row's ancestors behind its sequence's end, the newest first.
void StateInput::trace(int32_t row, size_t count) {
  sources_.clear();
  records_.clear();
  const kernels::StateRow* at = &plan_.rows()[static_cast<size_t>(row)];
  while (at->parent >= 0 && sources_.size() < count) {
    sources_.push_back(at->parent);
    at = &plan_.rows()[static_cast<size_t>(at->parent)];
    records_.push_back(at->record);
  }
  for (size_t i = at->above.size(); i-- > 0 && sources_.size() < count;) {
    sources_.push_back(~at->above[i]);
    records_.push_back(at->above[i]);
  }
  assert(sources_.size() == count);
}

// `before`: the row of the sequence that comes before it; -1: none.
Status StateInput::add_row(int32_t row, int32_t before, device::PassStateRow* rows,
                           PassIndices& indices) {
  const kernels::StateRow& from = plan_.rows()[static_cast<size_t>(row)];
  device::PassStateRow& to = rows[row];
  to.sequence = static_cast<int32_t>(plan_.sequence_of(static_cast<size_t>(row)));
  to.record = from.record;
  to.into[0] = from.into[0];
  to.into[1] = -1;
  to.depth =
      from.parent >= 0 ? rows[from.parent].depth + 1 : static_cast<int32_t>(from.above.size());
  const bool goes_on = before >= 0 && from.parent == before;
  const auto depth = static_cast<size_t>(to.depth), inputs = std::min(depth, most_inputs_);
  trace(row, goes_on ? inputs : depth);
  AERIE_ASSIGN_OR_RETURN(to.sources, indices.add(std::span(sources_).first(inputs)));
  to.path = 0;
  to.path_count = -1;
  if (goes_on) return {};
  std::ranges::reverse(records_);
  if (std::ranges::find(records_, -1) != records_.end()) {
    return internal_error("row {} goes on from one that has no record", row);
  }
  AERIE_ASSIGN_OR_RETURN(to.path, indices.add(records_));
  to.path_count = static_cast<int32_t>(records_.size());
  return {};
}

Status StateInput::add_rows(size_t number, const KvCache& cache, device::PassStateRow* rows,
                            PassIndices& indices) {
  const StatePlan::Sequence& sequence = plan_.sequences()[number];
  int32_t before = -1;
  for (const int32_t row : plan_.rows_of(sequence)) {
    AERIE_RETURN_IF_ERROR(add_row(row, before, rows, indices));
    before = row;
  }
  if (sequence.settled > 0) {
    rows[before].into[1] = cache.states()->slot(sequence.id);
  }
  return {};
}

Status StateInput::add_sequence(size_t number, const KvCache& cache, std::span<const int> planes,
                                int32_t* host, PassIndices& indices) {
  const StatePlan::Sequence& sequence = plan_.sequences()[number];
  const StateStore& states = *cache.states();
  auto* rows = reinterpret_cast<device::PassStateRow*>(host + rows_at_);
  device::PassStateSequence& to =
      reinterpret_cast<device::PassStateSequence*>(host + sequences_at_)[number];
  to.slot = states.slot(sequence.id);
  to.from = to.end = sequence.end;
  for (size_t i = 0; i < planes.size(); ++i) {
    const int base = states.base(sequence.id, planes[i]);
    assert(base <= sequence.end);
    host[bases_at_ + static_cast<int64_t>(i) * room_ + static_cast<int64_t>(number)] = base;
    to.from = std::min(to.from, base);
  }
  AERIE_ASSIGN_OR_RETURN(to.settled, indices.add(states.records(sequence.id, to.from, to.end)));
  const std::span<const int32_t> order = plan_.rows_of(sequence);
  AERIE_ASSIGN_OR_RETURN(to.first, indices.add(order));
  to.count = static_cast<int32_t>(order.size());
  AERIE_RETURN_IF_ERROR(add_rows(number, cache, rows, indices));
  AERIE_RETURN_IF_ERROR(indices.check_room(to.count));
  to.saved = static_cast<int32_t>(indices.used());
  to.saved_count = 0;
  for (const int32_t row : order) {
    if (rows[row].into[0] < 0 && rows[row].into[1] < 0) continue;
    indices.add(row);
    ++to.saved_count;
  }
  return {};
}

Expected<int> StateInput::build(const ForwardBatch& batch, const KvCache& cache,
                                std::span<const int> planes, int32_t* host, PassIndices& indices) {
  plan_.build(batch, cache);
  const size_t sequences = plan_.sequences().size();
  if (std::ssize(plan_.sequences()) > room_) {
    return internal_error("a pass has {} sequences and room for {}", sequences, room_);
  }
  for (size_t i = 0; i < sequences; ++i) {
    AERIE_RETURN_IF_ERROR(add_sequence(i, cache, planes, host, indices));
  }
  return static_cast<int>(sequences);
}

void StateInput::advance(KvCache& cache, std::span<const int> planes) const {
  for (const StatePlan::Sequence& sequence : plan_.sequences()) {
    for (const int plane : planes) {
      cache.states()->advance(sequence.id, plane, sequence.end + sequence.settled);
    }
  }
}

}  // namespace aerie

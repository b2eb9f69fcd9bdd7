#include "train/data/features/tap_recorder.h"

#include <algorithm>

#include "tensor/dtype.h"

namespace aerie::train {

// A sequence that was suspended begins anew.
Status TapRecorder::open(const DraftSequence& sequence) {
  taps_[sequence.id].clear();
  return {};
}

Status TapRecorder::observe(std::span<const DraftCommit> commits) {
  for (const DraftCommit& commit : commits) {
    if (commit.rows == 0) continue;
    std::vector<uint16_t>& taps = taps_[commit.id];
    const size_t begin =
        commit.taps.size() / static_cast<size_t>(commit.rows) * static_cast<size_t>(commit.first);
    taps.resize(begin + commit.taps.size());
    std::ranges::transform(commit.taps, taps.begin() + static_cast<ptrdiff_t>(begin), f32_to_bf16);
  }
  return {};
}

std::vector<uint16_t> TapRecorder::take(SequenceId id) {
  auto node = taps_.extract(id);
  return node.empty() ? std::vector<uint16_t>() : std::move(node.mapped());
}

}  // namespace aerie::train

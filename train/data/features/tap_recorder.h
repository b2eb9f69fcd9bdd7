// Keeps what the target's layers hold while it answers, so that nothing is read a second time.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "draft/drafter.h"

namespace aerie::train {

// A drafter that proposes nothing and hears of all rows. Its memory grows with the texts that are
// open. One thread at a time.
class TapRecorder final : public Drafter {
 public:
  explicit TapRecorder(std::vector<int32_t> layers) { needs_.tap_layers = std::move(layers); }

  std::string_view method() const override { return "taps"; }
  const DrafterNeeds& needs() const override { return needs_; }
  Status open(const DraftSequence& sequence) override;
  // What was read stays until it is taken.
  void close(SequenceId /*id*/) override {}
  // Nothing may be taken from the cache unread.
  int reusable(std::span<const int32_t> /*tokens*/, int /*drafter*/,
               std::string_view /*tenant*/) const override {
    return 0;
  }
  Status propose(std::span<DraftRequest> /*requests*/) override { return {}; }
  Status observe(std::span<const DraftCommit> commits) override;

  // Of the positions that were read of a sequence, from 0: bfloat16 [positions][layers][hidden].
  std::vector<uint16_t> take(SequenceId id);

 private:
  DrafterNeeds needs_;
  std::unordered_map<SequenceId, std::vector<uint16_t>> taps_;
};

}  // namespace aerie::train

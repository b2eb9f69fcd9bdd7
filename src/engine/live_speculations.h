// The settings of speculation that a service offers, which may change while it runs.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "draft/auto/choice.h"
#include "draft/speculative_config.h"
#include "engine/opened_model.h"

namespace aerie {

// What is not said otherwise is for the thread that decodes, between its steps.
class LiveSpeculations {
 public:
  // Takes the drafters of `opened`, which must outlive it. Errors are choose_drafters()'s.
  static Expected<std::unique_ptr<LiveSpeculations>> make(OpenedModel& opened, int sequences);

  DrafterChoice& drafter() { return *choice_; }

  // From any thread: the short forms; empty: it has gone.
  std::vector<std::string> names() const;
  // From any thread: SequenceOptions::drafter for one, -1 for plain decoding, which stays as long
  // as the pointer is held. One that has gone is the first; null for a number that never was.
  std::shared_ptr<const int> drafter_of(int speculation) const;
  // From any thread: that drafters which were added took.
  int64_t added_bytes() const;

  // Its number. kInvalidArgument for one that drafts more tokens than there is room for
  // (EngineOptions::draft_room), kResourceExhausted if there are too many, and the errors of its
  // files.
  Expected<int> add(const SpeculativeConfig& config);
  // From any thread: no more sequences begin with it. kInvalidArgument for one that was there from
  // the beginning, kNotFound for one that is not.
  Status remove(int speculation);
  // Drops what has been removed and nobody holds any more; whether there was any.
  bool sweep();

  static constexpr int kMostAdded = 16;  // at a time

 private:
  LiveSpeculations(OpenedModel& opened, int sequences) : opened_(opened), sequences_(sequences) {}

  int count_added() const;

  struct One {
    std::string name;
    std::shared_ptr<const int> drafter = std::make_shared<const int>(-1);
    bool is_leaving = false;
    std::vector<ModelSource> sources;  // of one that was added
    int64_t bytes = 0;                 // likewise
  };

  OpenedModel& opened_;
  const int sequences_;
  mutable std::mutex mutex_;
  std::vector<One> all_;
  size_t given_ = 0;                       // from the beginning
  std::unique_ptr<DrafterChoice> choice_;  // goes before the sources
};

}  // namespace aerie

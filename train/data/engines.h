// Several engines that answer beside one another.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "train/data/answer.h"
#include "train/data/conversation.h"
#include "train/data/running_target.h"

namespace aerie::train {

// On a GPU one engine alone leaves most of it idle, and of the processor all but a thread.
class Engines {
 public:
  // Opens `count` - 1 more like `first`, all at once; with its own options as they were given.
  static Expected<Engines> open(std::unique_ptr<RunningTarget> first,
                                const RunningTargetOptions& options, int count);

  struct Calls {
    // Both hear of all engines, one at a time; see AnswerCalls.
    std::function<Status(Sample, std::vector<uint16_t> taps)> done;
    std::function<void(const AnswerCounts&)> progress;
    const std::atomic<bool>* cancel = nullptr;
    std::vector<int32_t> tap_layers = {};  // what is recorded; empty: nothing
  };
  // As answer(): the engines take turns at the tasks. An error of one ends all.
  Expected<AnswerCounts> answer(const ConversationFormat& format, const AnswerSettings& settings,
                                const std::vector<AnswerTask>& tasks, const Calls& calls);

 private:
  std::vector<std::unique_ptr<RunningTarget>> targets_;
};

}  // namespace aerie::train

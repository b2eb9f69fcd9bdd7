// The target answers prompts, several at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "engine/samples/data_info.h"
#include "engine/samples/sample.h"
#include "report/prompt_set.h"
#include "train/data/conversation.h"
#include "train/data/features/tap_recorder.h"
#include "train/data/running_target.h"

namespace aerie::train {

// A sample that is wanted.
struct AnswerTask {
  const Prompt* prompt = nullptr;  // not owned
  int index = 0;                   // which of the prompt's samples
};

struct AnswerCounts {
  int samples = 0;
  int64_t prompt_tokens = 0;
  int64_t tokens = 0;      // generated
  int too_long = 0;        // prompts that leave no room for a reply, and have none
  int turns_left_out = 0;  // later turns that found no room
  int reading = 0;         // replies of which there is no token yet
};

struct AnswerCalls {
  // Takes a finished sample, and what was recorded of it. An error ends the run.
  std::function<Status(Sample, std::vector<uint16_t> taps)> done;
  // Hears of all that the target reads; then `taps` are bfloat16 [tokens][layers][hidden], zeros
  // for the last token, which the target never reads and nothing is learned behind. May be null.
  TapRecorder* recorder = nullptr;
  // After each pass; may be empty.
  std::function<void(const AnswerCounts&)> progress;
  // Asked before every pass; once it is true, the run ends without error, and what is unfinished
  // is lost. May be null.
  const std::atomic<bool>* cancel = nullptr;
};

// Settings of a sample, by its prompt's number and its own.
double temperature_of(const AnswerSettings& settings, int prompt, int index);
uint64_t seed_of(const AnswerSettings& settings, int prompt);

// Works through the tasks in their order, as many at a time as the target has sequences. Every turn
// of a prompt is answered in order. kInvalidArgument for settings that cannot be.
Expected<AnswerCounts> answer(RunningTarget& target, const ConversationFormat& format,
                              const AnswerSettings& settings, const std::vector<AnswerTask>& tasks,
                              const AnswerCalls& calls);

}  // namespace aerie::train

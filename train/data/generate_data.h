// Makes the samples of a folder: what `aerie train data` does.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/status.h"
#include "report/prompt_set.h"
#include "train/data/answer.h"
#include "train/data/answer_file.h"
#include "train/data/running_target.h"

namespace aerie::train {

struct GenerateOptions {
  RunningTargetOptions target;       // its sequences are the batch of each engine
  int engines = 1;                   // that answer beside one another
  std::vector<std::string> prompts;  // files of report/prompt_set.h
  PromptSelection selection;         // may become larger from run to run
  std::string out;                   // the folder
  AnswerSettings settings;
  int samples = 1;  // of each prompt; may become larger from run to run
  Shard shard;
  bool use_template = true;
  // Of `prompts`, those files whose `prompt`s are texts to go on with even so.
  std::vector<std::string> plain;
  double held_out = 0.02;
  // Layers whose features are stored as they come; empty: none are. What was answered before, or
  // is lost with a kill, store_features() adds.
  std::vector<int32_t> features;
  const std::atomic<bool>* cancel = nullptr;  // see AnswerCalls

  static constexpr int kDefaultBatch = 32;
};

struct GenerateResult {
  int there = 0;    // samples of the shard that were there before
  int missing = 0;  // samples of the shard that are still to be made: it was cancelled
  AnswerCounts counts;
  double seconds = 0.0;  // of answering
};

// Makes the samples that the folder lacks and adds them to the shard's file as they are finished.
// Errors of reading, opening and writing; kInvalidArgument, naming the difference, for a folder
// whose samples were made with other settings. What is finished stays, whatever happens.
Expected<GenerateResult> generate_data(const GenerateOptions& options);

}  // namespace aerie::train

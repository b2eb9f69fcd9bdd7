// What `aerie speedup` is asked for.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/methods/training_methods.h"

namespace aerie::train {

struct SpeedupOptions {
  std::string model;                 // a GGUF file or a Hugging Face folder
  std::string out;                   // the folder of everything that is made
  double budget = 7200.0;            // seconds of everything
  std::vector<std::string> prompts;  // files of report/prompt_set.h
  // Of `prompts`, those whose `prompt`s are texts to go on with, without the chat template.
  std::vector<std::string> plain;
  const TrainingMethod* method = nullptr;  // null: the first that it can train by
  int threads = 0;                         // 0: all
  at::Device device = at::kCPU;
  // Tokens that the head can draft: kAutoVocab, or 0 for all.
  int64_t draft_vocab = kAutoVocab;
  bool int8 = true;     // the head's matrices are stored in 8 bits, else as they were trained
  std::string command;  // as it was typed, for the model card and to say how to go on
  std::function<void(const std::string& line)> say;  // lines for people; may be null
  const std::atomic<bool>* cancel = nullptr;         // true ends it; may be null

  static constexpr int64_t kAutoVocab = -1;  // a quarter of the model's, if that is a large one
};

}  // namespace aerie::train

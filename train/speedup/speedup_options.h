// What `aerie speedup` is asked for.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tensor/dtype.h"
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
  // Width of the head's feed-forward; 0: the model's.
  int64_t intermediate = 0;
  // Of the stored head's matrices; null: as they were trained.
  std::optional<DType> type = DType::kQ8_0;
  std::string command;  // as it was typed, for the model card and to say how to go on
  std::function<void(const std::string& line)> say;  // lines for people; may be null
  const std::atomic<bool>* cancel = nullptr;         // true ends it; may be null

  static constexpr int64_t kAutoVocab = -1;  // a quarter of the model's, from 8192 to 16384
};

}  // namespace aerie::train

// `aerie speedup`: from a model to a draft head for it, measured, and a profile that says how to
// use it.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace aerie::train {

enum class SpeedupMethod : uint8_t { kAuto, kEagle3, kPEagle };
// "auto", "eagle3", "p-eagle".
Expected<SpeedupMethod> parse_speedup_method(const std::string& name);

struct SpeedupOptions {
  std::string model;                 // a GGUF file or a Hugging Face folder
  std::string out;                   // the folder of everything that is made
  double budget = 7200.0;            // seconds of everything
  std::vector<std::string> prompts;  // files of report/prompt_set.h
  // Of `prompts`, those whose `prompt`s are texts to go on with, without the chat template.
  std::vector<std::string> plain;
  SpeedupMethod method = SpeedupMethod::kAuto;
  int threads = 0;  // 0: all
  at::Device device = at::kCPU;
  // Tokens that the head can draft: kAutoVocab, or 0 for all.
  int64_t draft_vocab = kAutoVocab;
  bool int8 = true;     // the head's matrices are stored in 8 bits, else as they were trained
  std::string command;  // as it was typed, for the model card and to say how to go on
  std::FILE* progress = nullptr;                     // of long stages; null: none
  std::function<void(const std::string& line)> say;  // lines for people; may be null
  const std::atomic<bool>* cancel = nullptr;         // true ends it; may be null

  static constexpr int64_t kAutoVocab = -1;  // a quarter of the model's, if that is a large one
};

enum class SpeedupEnd : uint8_t { kDone, kInterrupted };

// OUT then holds
//   speedup.json   what was measured before, and how far it has come
//   prompts.jsonl  all prompts in the order in which they are answered
//   held-out.jsonl those that nothing is trained on
//   data/, run/    as `aerie train data` and `aerie train METHOD` leave them
//   head/          what users load, with its model card
//   profile.json   as `aerie tune` writes it
//   report.json    all figures
// With the same options it goes on with what is there; when all of it is, it says so.
//
// kInvalidArgument, saying what to do, for options that cannot be, a budget in which too little
// would be learned, and a folder that was begun with other options; kResourceExhausted if there is
// not enough room on the disk; else errors of the stages. What is finished stays in any case.
Expected<SpeedupEnd> speedup(const SpeedupOptions& options);

}  // namespace aerie::train

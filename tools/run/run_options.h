// What `aerie run` was asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "model/import/suggested_sampling.h"

namespace aerie {

// What the prompt is to the model.
enum class PromptForm : uint8_t {
  kFitting,  // a message where the model has a chat template, else a text
  kMessage,
  kText,  // to go on with
};

struct RunOptions {
  EngineOptions engine;
  SamplingParams sampling;
  SuggestedSampling asked;    // the part of it that was asked for: it goes before the model's own
  bool use_suggested = true;  // where nothing was asked for, what the model's makers recommend
  std::string prompt;
  bool has_prompt = false;
  std::string prompt_file;      // "-": standard input
  std::string prediction_file;  // empty: none
  bool chat = false;
  PromptForm form = PromptForm::kFitting;
  std::string system;  // system message
  bool has_system = false;
  int max_tokens = 0;  // 0: until the reply ends or the context is full
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::optional<GrammarSpec> grammar;  // what replies keep to
  std::string json_file;
  std::string record_file;  // engine/recording/record.h; empty: none
  bool quiet = false;       // no closing line
  bool color = false;       // tokens in the colour of where they came from
  bool dim_reasoning = false;
  std::string history_file;  // of what is typed in a chat; empty: none
};

}  // namespace aerie

// What `aerie run` was asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace aerie {

struct RunOptions {
  EngineOptions engine;
  SamplingParams sampling;
  std::string prompt;
  bool has_prompt = false;
  std::string prompt_file;      // "-": standard input
  std::string prediction_file;  // empty: none
  bool chat = false;
  bool use_template = false;  // the prompt is one user message
  std::string system;         // system message of --template and --chat
  bool has_system = false;
  int max_tokens = 0;  // 0: until the reply ends or the context is full
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::optional<GrammarSpec> grammar;  // what replies keep to
  std::string json_file;
  std::string record_file;  // engine/record.h; empty: none
  bool quiet = false;       // no closing line
};

}  // namespace aerie

// A text of the training data: prompt and replies, as token ids.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "decode/sequence.h"

namespace aerie {

struct Sample {
  std::string id;      // "PROMPT-INDEX", such as "12-0"; see sample_id()
  int prompt = 0;      // the prompt's number in the files of prompts
  int index = 0;       // which of the prompt's samples
  std::string source;  // the prompt's name: "FILE:LINE"
  double temperature = 0.0;
  uint64_t seed = 0;
  FinishReason finish = FinishReason::kNone;  // of the last reply
  std::vector<int32_t> tokens;
  // As long as tokens: 1 where the target generated the token (an end token included), which is
  // where the loss is; 0 where it is of the prompt.
  std::vector<uint8_t> mask;
};

std::string sample_id(int prompt, int index);

// How many tokens have mask 1.
int64_t generated_tokens(const Sample& sample);

// One line of JSON without its end. The mask becomes `replies`, a list of [begin, end).
std::string to_line(const Sample& sample);

// The reverse. kInvalidData, starting with `where` and naming the key, for what cannot be: token
// ids outside 0 .. vocab - 1 as well.
Expected<Sample> parse_sample(std::string_view line, const std::string& where, int vocab);

}  // namespace aerie

// Prompts of given lengths that are made for a load, as `vllm bench serve` makes its sets random
// and sonnet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure/load/made/server_tokens.h"
#include "report/prompt_set.h"

namespace aerie::measure {

// Lengths are tokens.
struct RandomPrompts {
  int input = 1024;
  int output = 128;
  int prefix = 0;    // the same tokens before each, beside `input`
  double range = 0;  // lengths are drawn from so much less to so much more: 0.2 is a fifth
};

struct SonnetPrompts {
  int input = 550;
  int output = 150;
  int prefix = 200;  // of `input`: the same lines at the beginning of each
};

// vLLM's --num-prompts where none is given.
inline constexpr int kMadePrompts = 1000;

// Words drawn one by one. What the server puts before a text counts in `input`, as in vLLM. As
// token ids, so that the lengths are exact, and as a text, which is as long where the server has a
// token for each word. The same for the same seed and tokenizer. kInvalidArgument, naming the flag,
// for lengths and ranges that cannot be; the server's errors.
Expected<std::vector<Prompt>> make_random_prompts(const RandomPrompts& options, int count,
                                                  uint64_t seed, ServerTokens& tokens);

// Lines of the file drawn one by one behind the first ones and a request to pick from them; no
// longer than `input`, with the template where `chat`. kInvalidArgument, naming the flag, for
// lengths that cannot be and a file without lines; the file's and the server's errors.
Expected<std::vector<Prompt>> make_sonnet_prompts(const SonnetPrompts& options,
                                                  const std::string& file, bool chat, int count,
                                                  uint64_t seed, ServerTokens& tokens);

}  // namespace aerie::measure

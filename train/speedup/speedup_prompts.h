// The prompts of `aerie speedup`: one file to answer and one to evaluate with.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "bench/prompt_set.h"

namespace aerie::train {

// All prompts of the files in an order in which any beginning of it holds something of each file;
// the same for the same files, and numbered in it. `plain` as in GenerateOptions.
Expected<std::vector<bench::Prompt>> mixed_prompts(const std::vector<std::string>& files,
                                                   const std::vector<std::string>& plain);

// Of a prompt, in the mean: how many turns are answered.
double mean_turns(const std::vector<bench::Prompt>& prompts, bool chat_template);

// JSON lines as bench::read_prompts() takes them. Those without `chat` have a `prompt`.
std::string to_lines(const std::vector<bench::Prompt>& prompts);

// Those that is_held_out() says validate, and whose text is certain to leave room for a reply of
// `reply` tokens in so large a context.
std::vector<bench::Prompt> held_out_prompts(const std::vector<bench::Prompt>& prompts,
                                            double fraction, int context, int reply);

}  // namespace aerie::train

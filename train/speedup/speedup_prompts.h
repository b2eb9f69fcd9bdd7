// The prompts of `aerie speedup`: one file to answer and one to evaluate with.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "report/prompt_set.h"

namespace aerie::train {

// All prompts of the files in an order in which any beginning of it holds something of each file;
// the same for the same files, and numbered in it. `plain` as in GenerateOptions.
Expected<std::vector<Prompt>> mixed_prompts(const std::vector<std::string>& files,
                                            const std::vector<std::string>& plain);

// Of a prompt, in the mean: how many turns are answered.
double mean_turns(const std::vector<Prompt>& prompts, bool chat_template);

// JSON lines as read_prompts() takes them. Those without `chat` have a `prompt`.
std::string to_lines(const std::vector<Prompt>& prompts);

// Those that is_held_out() says validate, and whose text is certain to leave room for a reply of
// `reply` tokens in so large a context.
std::vector<Prompt> held_out_prompts(const std::vector<Prompt>& prompts, double fraction,
                                     int context, int reply);

}  // namespace aerie::train

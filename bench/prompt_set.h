// Prompts of a benchmark, from files of JSON lines as Spec-Bench, MT-bench and HumanEval are
// published.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace aerie::bench {

struct Prompt {
  std::string name;  // "FILE:LINE", with the line's question_id or task_id if it has one
  std::string task;
  // What the user says, turn by turn; at least one, none empty.
  std::vector<std::string> turns;
  // From `turns`: messages of a chat. Else from `prompt`: a text to go on with.
  bool chat = false;
  int number =
      0;  // from 0 through all files, before any are left out: the same for every selection
};

struct PromptSelection {
  int limit = 0;   // the first so many of a file; 0: all
  int sample = 0;  // of those so many of each task, evenly spread; 0: all
};

// The task under which Spec-Bench reports the questions of MT-bench.
inline constexpr const char* kMultiTurn = "Multi-turn Conversation";

// Each line is an object with `turns` (a list of texts) or `prompt` (a text), and may have
// `category` (a text) and `question_id` or `task_id` (a text or a whole number); other keys are for
// others. The task is the category, or the file's name without folder and extension; MT-bench's
// eight categories are kMultiTurn where there is more than one turn. Blank lines are skipped. Files
// follow one another in the order given, and so do the lines of a file.
//
// kNotFound for a file that cannot be read, kInvalidData, naming file and line and what is wanted,
// for a line that is broken, kInvalidArgument for a selection that cannot be and for no prompts.
Expected<std::vector<Prompt>> read_prompts(const std::vector<std::string>& files,
                                           const PromptSelection& selection);

}  // namespace aerie::bench

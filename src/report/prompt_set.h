// Prompts from files of JSON lines as Spec-Bench, MT-bench, HumanEval, GSM8K, MBPP and sets of
// chats are published.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"

namespace aerie {

struct Prompt {
  std::string name;  // "FILE:LINE", with the line's question_id or task_id if it has one
  int file = 0;      // the index of the file that it is of
  std::string task;
  std::string system;  // the system message of `messages`; empty: none
  // What the user says, turn by turn; at least one, none empty.
  std::vector<std::string> turns;
  // Messages of a chat; else, from `prompt`, a text to go on with.
  bool chat = false;
  // Of prompts that were made (measure/load/made/made_prompts.h): the same as token ids, where
  // these are known, and how many tokens the reply may have; empty and 0 of those that were read.
  std::vector<int32_t> ids = {};
  int max_tokens = 0;
  int number =
      0;  // from 0 through all files, before any are left out: the same for every selection
};

// Lines whose whole number `key` lies outside first .. last are left out; those without the key are
// not.
struct PromptRange {
  std::string key;
  int64_t first = std::numeric_limits<int64_t>::min();
  int64_t last = std::numeric_limits<int64_t>::max();
};
// From "KEY=A..B" or "KEY=A"; A or B may be missing before and behind the dots. kInvalidArgument
// for anything else.
Expected<PromptRange> parse_prompt_range(const std::string& text);

struct PromptSelection {
  int limit = 0;                        // the first so many of a file; 0: all
  int sample = 0;                       // of those so many of each task, evenly spread; 0: all
  std::vector<PromptRange> where = {};  // comes before both
  const char* flag = "--dataset";       // that names the files, for messages
};

// The task under which Spec-Bench reports the questions of MT-bench.
inline constexpr const char* kMultiTurn = "Multi-turn Conversation";

// Each line is an object with one of
//   `turns`     a list of texts: what the user says; or as the next
//   `messages`  a list of {role, content}, of which those of the roles user and system count (one
//               of the latter, at the front); the rest of such a line is passed over
//   `conversations`  the same as ShareGPT has it: {from, value}, `human` for user, `gpt` and its
//               like for assistant
//   `question`, `text`  the one turn of a chat
//   `prompt`    a text to go on with
// and may have `category` (a text) and `question_id` or `task_id` (a text or a whole number); other
// keys are for others. The task is the category, or the file's name without folder and extension;
// MT-bench's eight categories are kMultiTurn where there is more than one turn. Blank lines are
// skipped. Files follow one another in the order given, and so do the lines of a file.
//
// kNotFound for a file that cannot be read, kInvalidData, naming file and line and what is wanted,
// for a line that is broken (by a range's key, too), kInvalidArgument for a selection that cannot
// be and for no prompts.
Expected<std::vector<Prompt>> read_prompts(const std::vector<std::string>& files,
                                           const PromptSelection& selection);

}  // namespace aerie

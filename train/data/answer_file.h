// Files of samples: DIR/answers-I-of-N.jsonl, a line for each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/samples/sample.h"

namespace aerie::train {

// One machine's part of the work: prompts whose number leaves `part` - 1 when divided by `of`.
struct Shard {
  int part = 1;
  int of = 1;

  bool has(int prompt) const { return prompt % of == part - 1; }
};
// "2/3". kInvalidArgument for what is none.
Expected<Shard> parse_shard(const std::string& text);

// All answers-*.jsonl of the folder, sorted by name.
Expected<std::vector<std::string>> answer_files(const std::string& folder);

// The samples of one file. A last line without its end, which a run that was killed or is under way
// may leave, does not count. kInvalidData, naming file and line, for what is wrong.
Expected<std::vector<Sample>> read_answers(const std::string& path, int vocab);

// Grows by whole lines. One at a time, of all processes: it is locked as long as it is open.
class AnswerFile {
 public:
  // Opens or makes it, and cuts off a last line without its end. kInvalidArgument if another
  // process has it open or no file can be made.
  static Expected<AnswerFile> open(const std::string& folder, const Shard& shard);

  ~AnswerFile();
  AnswerFile(AnswerFile&& other) noexcept;
  AnswerFile& operator=(AnswerFile&&) = delete;

  const std::string& path() const { return path_; }
  // Adds a line and hands it to the system, whole or, with an error (kResourceExhausted if the disk
  // is full), not at all.
  Status append(const Sample& sample);

 private:
  AnswerFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  Status cut_torn_line();

  std::string path_;
  int fd_ = -1;
};

}  // namespace aerie::train

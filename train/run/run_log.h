// log.jsonl of a run: a line for every so many steps and for every evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace aerie::train {

// All lines are kept in memory, too. One thread at a time.
class RunLog {
 public:
  // Takes over what is there of steps up to `step`; the rest, of a run that went on after its last
  // checkpoint, is cut off, and so is a torn line. kInvalidData for lines that are no log's.
  static Expected<RunLog> open(const std::string& path, int64_t step);

  // An object with an integer "step". kResourceExhausted if the disk is full.
  Status add(const Json& line);

  const std::vector<Json>& lines() const;

  RunLog(RunLog&&) noexcept;
  ~RunLog();

 private:
  explicit RunLog(std::string path);

  std::string path_;
  std::vector<Json> lines_;
};

}  // namespace aerie::train

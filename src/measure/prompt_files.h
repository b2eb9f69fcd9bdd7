// Files of prompts from what somebody calls them.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace aerie::measure {

// JSON lines (report/prompt_set.h), some of which may have been made for this run. Moves, does not
// copy; what was made is removed with the object.
class PromptFiles {
 public:
  // A file is taken as it is. ORG/REPO[@REVISION] is a dataset of a hub (hub/locate.h), of which
  // all files of JSON lines are taken, or else those in Parquet. Parquet is read by Python's
  // pyarrow: kUnsupported, with what to type, where that is not at hand.
  static Expected<PromptFiles> locate(const std::vector<std::string>& names);

  ~PromptFiles();
  PromptFiles(PromptFiles&& other) noexcept;
  PromptFiles& operator=(PromptFiles&&) = delete;

  const std::vector<std::string>& paths() const { return paths_; }

 private:
  PromptFiles() = default;
  Status add(const std::string& path);
  Status add_dataset(const std::string& name);
  Status add_parquet(const std::string& path);

  std::vector<std::string> paths_;
  std::string folder_;  // of what was made; empty: nothing was
};

}  // namespace aerie::measure

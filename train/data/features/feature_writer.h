// Adds features to a folder's files, those of one sample after another.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "engine/samples/feature_file.h"
#include "train/data/answer_file.h"

namespace aerie::train {

// Of the shard's numbers from `next` on the first that no file has; `next` is then behind it.
std::string free_feature_path(const std::string& folder, const Shard& shard, int& next);

class FeatureWriter {
 public:
  // `file_bytes`: about, of a file. kInvalidArgument if the folder has features of another kind;
  // errors of FeatureFiles::open().
  static Expected<FeatureWriter> open(const std::string& folder, const Shard& shard,
                                      const FeatureKind& kind,
                                      int64_t file_bytes = kFeatureFileBytes);

  // Takes bfloat16 [tokens][taps][hidden] of a sample, unless it has some. They are in a file once
  // enough has come together, or after finish(); an error of writing may be that of an earlier one.
  Status add(const std::string& id, std::vector<uint16_t> values);
  Status finish();

 private:
  struct Entry {
    std::string id;
    std::vector<uint16_t> values;
  };

  std::string folder_;
  Shard shard_;
  FeatureKind kind_;
  int64_t file_bytes_ = 0, bytes_ = 0;
  int next_file_ = 0;
  std::unordered_set<std::string> there_;  // that the folder had
  std::vector<Entry> waiting_;
};

}  // namespace aerie::train

// The samples of a folder, for those who train on them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/samples/sample.h"
#include "train/data/info.h"

namespace aerie::train {

struct Dataset {
  DataInfo info;
  std::vector<Sample> samples;  // by prompt number, then index: the same however they were made
  int64_t tokens = 0;           // of all samples
  int64_t generated = 0;        // of these, with mask 1
};

// All samples of all answers-*.jsonl. kNotFound if there is no data.json; kInvalidData, naming file
// and line or both files, for a broken line, a sample that is there twice and one that does not
// come of data.json's settings; kInvalidArgument if there are no samples.
Expected<Dataset> read_dataset(const std::string& folder);

// Whether the prompt's samples validate: a hash of its number falls below `fraction`. All samples
// of a prompt stand on one side, and a larger fraction only moves prompts to this one.
bool is_held_out(int prompt, double fraction);

// The samples' places in Dataset::samples, ascending; each is in one of the two.
struct DatasetSplit {
  std::vector<size_t> training;
  std::vector<size_t> validation;
};
DatasetSplit split(const Dataset& dataset, double fraction);

// Of each token of the vocabulary, how many times the target generated it. Requires
// vocab >= info.vocab.
std::vector<int64_t> token_counts(const Dataset& dataset, int vocab);

}  // namespace aerie::train

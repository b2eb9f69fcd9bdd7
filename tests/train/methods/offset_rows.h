// What heads that draft a fixed distance ahead say, read off their losses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/batches/batch.h"
#include "train/methods/training_method.h"

namespace aerie::test {

// The log-probability that head `head` gives each of the labels in row `row` of a batch of one
// text.
std::vector<float> offset_log_probabilities(train::Method& method, const train::Batch& batch,
                                            int64_t row, int head, std::span<const int32_t> labels);

std::vector<float> log_softmax(std::span<const float> logits);

}  // namespace aerie::test

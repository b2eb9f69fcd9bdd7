// What heads that draft a fixed distance ahead say, read off their losses.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft/heads/feature_head.h"
#include "tests/draft/heads/head_rows.h"
#include "tests/train/text_target.h"
#include "train/batches/batch.h"
#include "train/methods/training_method.h"

namespace aerie::test {

// The log-probability that head `head` gives each of the labels in row `row` of a batch of one
// text.
std::vector<float> offset_log_probabilities(train::Method& method, const train::Batch& batch,
                                            int64_t row, int head, std::span<const int32_t> labels);

// Head by head down the text, each fed what the one above handed on and the text's own token.
std::vector<RowOutput> drafted_down(FeatureHead& head, const train::Batch& batch,
                                    const PromptedText& text, int64_t row, int depth);

std::vector<float> log_softmax(std::span<const float> logits);

}  // namespace aerie::test

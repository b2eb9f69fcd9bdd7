// Drafts from a text that the caller expects as output, whole or in parts: OpenAI's predicted
// outputs (DraftSequence::prediction).
#pragma once

#include <memory>

#include "draft/drafter.h"

namespace aerie {

struct PredictionOptions {
  int num_tokens = 16;  // of a draft; >= 1
  int min_n = 1;        // tokens that must agree to find the way back; >= 1
  int max_n = 8;        // more than this many make no difference; >= min_n
};

// A chain of up to num_tokens point-mass nodes: what comes next in the prediction, where the output
// is in it. While the output goes along with the prediction, so does the place; the beginning is
// the place of the first token. When a token differs, the place is found again by the longest
// suffix of the output, of min_n to max_n tokens, that occurs in the prediction: its first
// occurrence after what was last agreed on, else its last one before. No prediction, none found, or
// its end: no draft. Estimates follow the rule of succession: after r tokens in a row that agreed,
// d more will with probability (r + 1) / (r + 1 + d).
//
// A round costs a look at each new token; one that begins off the prediction passes over all of it
// (a third of a microsecond for a thousand tokens, or so). Memory: the copy of the prediction,
// taken in open(). The output is taken to begin after the rows that are observed before the first
// propose().
Expected<std::unique_ptr<Drafter>> make_prediction_drafter(const PredictionOptions& options);

}  // namespace aerie

// SuffixDecoding (arXiv 2411.04975): what followed the longest and likeliest suffixes of the text
// so far, in this sequence and in the outputs of those of its tenant before it.
#pragma once

#include <memory>

#include "draft/drafter.h"

namespace aerie {

struct SuffixOptions {
  int num_tokens = 16;  // of a draft; >= 1
  int max_depth = 24;   // of a matched suffix and what is drafted after it, together; 2 to 256
  // A match of m tokens is worth a draft of factor * m + offset tokens.
  double factor = 1.0;  // >= 0
  double offset = 0.0;
  double min_probability = 0.1;  // of a node, by the counts; 0.001 to 1
  bool tree = false;             // the likeliest nodes rather than the likeliest chain
  int cached_tokens = 65536;     // of past outputs, all sequences of all tenants together; 0: none
};

// Drafts are made for every suffix of m tokens, m < max_depth, that occurred before (the suffix
// itself is no occurrence): one from the sequence's own prompt and output, one from past outputs.
// Each is a chain of the most frequent next tokens (among equals, the most recent) or a tree grown
// best first. A node's probability is the product of the frequencies down to it, its draft ends
// where that falls below min_probability, its score is the sum of its nodes' probabilities. The
// highest score is proposed; among equals, that of the longer match, then the sequence's own. The
// estimates that the nodes carry are lower than the frequencies: the more so, the shorter the
// match.
//
// Counts are exact. A token costs some 2 * max_depth steps on arrival, as many when its sequence is
// closed, which is when an output joins the past ones (the prompt does not), and half of that when
// it is dropped: once there are more than cached_tokens, those of the tenant go that asked for
// nothing for the longest time, and of the last one its oldest. An output longer than that counts
// with its end. The cost of a round does not depend on the length of the texts.
// The output is taken to begin after the rows that are observed before the first propose().
//
// Memory: at most 140 bytes for each of a sequence's max_tokens, of which 32 are written at once
// and the others as they are used, and at most 280 for each of cached_tokens, as they come. A
// tenant counts with 256 of these at least.
Expected<std::unique_ptr<Drafter>> make_suffix_drafter(const SuffixOptions& options);

}  // namespace aerie

// REST (He et al. 2311.08252): drafts are retrieved from a datastore, what followed the last tokens
// in a corpus of text.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "draft/drafter.h"

namespace aerie {

struct RestOptions {
  int vocab = 0;                  // ids below are drafted; >= 1
  int num_tokens = 16;            // nodes of a draft; >= 1
  int num_steps = 10;             // levels of a draft; 1 to 64
  int max_span = 16;              // of the tokens that are looked up; min_span to 64
  int min_span = 2;               // >= 1
  double min_probability = 0.02;  // of a path, by the counts; 0.001 to 1
};

// A tree of point-mass nodes, grown best first: what follows the longest suffix of the text that
// occurs in the corpus and is followed by anything there, merged by prefix. A node's share is how
// many of the occurrences go on that way (of more than CorpusIndex::kSamples that is estimated);
// the estimates that nodes carry are lower, the more so the shorter the match.
//
// The corpus is tokens, below vocab, and CorpusIndex::kEnd between its texts. It is the same for
// all sequences, and nothing is learnt from these. A round looks at max_span * log(corpus) tokens,
// and at kSamples for each node. Memory: that of CorpusIndex, taken here.
Expected<std::unique_ptr<Drafter>> make_rest_drafter(const RestOptions& options,
                                                     std::vector<int32_t> corpus);

}  // namespace aerie

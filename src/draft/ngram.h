// N-gram prompt lookup (Saxena 2023, "Prompt lookup decoding"): the tokens that followed the most
// recent earlier occurrence of the longest suffix of the text so far.
#pragma once

#include <memory>

#include "draft/drafter.h"

namespace aerie {

struct NgramOptions {
  int max_n = 3;       // >= min_n
  int min_n = 1;       // >= 1
  int num_tokens = 10; // >= 1
};

// A chain of up to num_tokens point-mass nodes. Longest n first, then the most recent earlier
// occurrence; the suffix itself is no match; the continuation is cut at the end of the text. The cost
// of a round depends on the tokens committed since the last one and on max_n, not on the length of
// the text. Memory: about 16 bytes for each token and each n.
Expected<std::unique_ptr<Drafter>> make_ngram_drafter(const NgramOptions& options);

}  // namespace aerie

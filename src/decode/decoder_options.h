// What a Decoder is made for.
#pragma once

#include "draft/auto/pass_cost.h"
#include "verify/verifier.h"

namespace aerie {

struct DecoderOptions {
  VerifyRule rule = VerifyRule::kExact;
  int prefill_chunk = 512;  // prompt rows in a pass
  int max_positions = 0;    // the longest sequence
  int max_nodes = 0;        // the most drafted nodes of one sequence in a round
  int max_rows = 512;       // the model's limits
  int max_logits = 64;
  PassCost* cost = nullptr;  // learns from every round's pass; not owned; may be null
  // Sequences begin with what others that began alike left in the cache.
  bool reuse_prefixes = false;
};

}  // namespace aerie

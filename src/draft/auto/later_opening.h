// A sequence that a drafter has nothing to do with at first.
#pragma once

#include <span>
#include <string>

#include "draft/drafter.h"

namespace aerie {

// What Drafter::open() takes, for later. The prediction is not kept.
class LaterOpening {
 public:
  explicit LaterOpening(const DraftSequence& sequence)
      : sequence_(sequence), tenant_(sequence.tenant) {
    sequence_.prediction = {};
  }
  // The sequence as it is with these tokens, of which the target has read all but the last. Holds
  // as long as this and the tokens.
  DraftSequence with(std::span<const int32_t> tokens) const {
    DraftSequence sequence = sequence_;
    sequence.tenant = tenant_;
    sequence.tokens = tokens;
    sequence.reused = static_cast<int>(tokens.size()) - 1;
    return sequence;
  }

 private:
  DraftSequence sequence_;
  std::string tenant_;
};

}  // namespace aerie

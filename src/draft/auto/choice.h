// Several drafters of which each sequence has one.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "draft/drafter.h"

namespace aerie {

// Drafter number DraftSequence::drafter drafts for a sequence; of a round, the sequences that have
// the same one are asked for together. open() has kInvalidArgument for a number that there is not.
class DrafterChoice : public Drafter {
 public:
  // One more, for sequences that are opened from now on: its number, which may be that of one that
  // has gone. needs() may grow. Errors are those of common_needs(), and nothing has changed then.
  virtual Expected<int> add(std::unique_ptr<Drafter> drafter) = 0;
  // Drops one, unless a sequence has it: whether it has gone. No other may be opened with it.
  virtual bool remove(int drafter) = 0;
};

// Errors are those of common_needs().
Expected<std::unique_ptr<DrafterChoice>> choose_drafters(
    std::vector<std::unique_ptr<Drafter>> drafters);

}  // namespace aerie

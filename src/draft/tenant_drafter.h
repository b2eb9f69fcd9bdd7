// A drafter for each tenant: how drafters that learn from one sequence for another keep apart what
// they learn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "draft/drafter.h"

namespace aerie {

// A drafter that keeps what it learnt of sequences when they are closed. forget() may be asked for
// while sequences are open, too.
class LearningDrafter : public Drafter {
 public:
  // That this takes.
  virtual int64_t learnt_bytes() const = 0;
};

// For each tenant (DraftSequence::tenant) that sequences are opened of, a drafter of its own, which
// make() makes; the first is made here. Of what they have learnt together no more than `most_bytes`
// are kept: the drafter of the tenant goes that had no sequence for the longest time, and if all
// have some, the one that has just learnt forgets. Throws what make() throws; where that is later,
// open() has an error.
//
// Nothing reaches one tenant's sequences of another's but the time that a round takes.
std::unique_ptr<Drafter> make_tenant_drafter(
    int64_t most_bytes, std::function<std::unique_ptr<LearningDrafter>()> make);

}  // namespace aerie

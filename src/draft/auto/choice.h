// Several drafters of which each sequence has one.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "draft/drafter.h"

namespace aerie {

// Drafter number DraftSequence::drafter drafts for a sequence; of a round, the sequences that have
// the same one are asked for together. Errors are those of common_needs(), and kInvalidArgument
// from open() for a number that there is not. Requires at least one drafter.
Expected<std::unique_ptr<Drafter>> choose_drafters(std::vector<std::unique_ptr<Drafter>> drafters);

}  // namespace aerie

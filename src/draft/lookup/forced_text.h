// What a constraint leaves no choice about, as a draft.
#pragma once

#include <memory>

#include "draft/auto/pass_cost.h"
#include "draft/drafter.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

// Of a sequence whose constraint forces the next bytes, proposes these as the tokenizer spells
// them; of all others what `inner` does. Which tokens spell a text stays the target's choice, so
// this is a draft like any other: as many of the tokens are proposed as make the most of a pass by
// `cost`, down to none, where `inner` drafts; all of them if it is null. Tokenizer and cost must
// outlive it.
std::unique_ptr<Drafter> make_forced_text_drafter(std::unique_ptr<Drafter> inner,
                                                  const Tokenizer& tokenizer, const PassCost* cost);

}  // namespace aerie

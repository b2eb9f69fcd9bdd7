// What a constraint leaves no choice about, as a draft.
#pragma once

#include <memory>

#include "draft/drafter.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

// Of a sequence whose constraint forces the next bytes, proposes these as the tokenizer spells
// them; of all others what `inner` does. Which tokens spell a text stays the target's choice, so
// this is a draft like any other. The tokenizer must outlive it.
std::unique_ptr<Drafter> make_forced_text_drafter(std::unique_ptr<Drafter> inner,
                                                  const Tokenizer& tokenizer);

}  // namespace aerie

// The default rule: plain decoding's tokens, whatever was proposed.
#pragma once

#include <memory>

#include "verify/verifier.h"

namespace aerie {

// The target draws its own token at the root and at each node that it reaches; the walk goes on
// while a child that is kDraft carries that token (the first of several). Any tree, however it was
// proposed; no random numbers but the target's own.
std::unique_ptr<Verifier> make_exact_verifier();

}  // namespace aerie

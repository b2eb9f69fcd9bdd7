// Self-speculation by early exit (LayerSkip, Elhoushi et al. 2404.16710): the target's first
// layers, its final norm and its head draft.
#pragma once

#include <memory>

#include "draft/drafter.h"

namespace aerie {

struct EarlyExitOptions {
  int exit_layer = 1;  // layers that draft: 1 to all but one
  int num_tokens = 5;  // >= 1
};

// A chain of num_tokens tokens, drawn as a draft model draws them (with the target's own noise
// where that is allowed, else from its own stream). It has no weights and no cache of its own: what
// the layers computed is in the target's cache, and verification goes on from there
// (draft/target_access.h). Good with models that were trained for it; others say little before
// their last layers. open() refuses a sequence that comes without its target.
Expected<std::unique_ptr<Drafter>> make_early_exit_drafter(const EarlyExitOptions& options);

}  // namespace aerie

// Decides in each round who drafts, how deep and how many nodes: as many as raise the tokens that
// are to be expected each second, down to none.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "draft/auto/pass_cost.h"
#include "draft/drafter.h"

namespace aerie {

struct ControllerOptions {
  int max_rows = 1 << 20;  // of a pass: no more roots and nodes than this, beside prompts' rows
  int max_nodes = 64;      // of a sequence, as the requests will have it
  // Drafts must promise this much more than plain decoding, so that what is uncertain in costs and
  // chances is no loss.
  double margin = 0.04;
  // Seconds on a clock that only rises, by which drafters are timed; none: the steady clock. With
  // the machine's clock what is drafted differs from run to run.
  std::function<double()> clock;
};

// "auto": a drafter made of several others. Drafters that cost next to nothing are asked in every
// round; what their trees promise is corrected by what came true of earlier ones (of this sequence,
// and of all of its tenant), the trees are merged by token prefix, and of the nodes of all
// sequences together the likeliest are taken, as many as make the most of a pass by `cost`.
// Drafters that take time are asked only as deep as their past acceptance makes up for it, and now
// and then to see whether that has changed. Where a draft is sampled (DraftNoise::kOwn) or brings
// rows of its own (NodeRole), it is taken whole or not asked for: nothing is decided by the tokens
// that were drawn.
//
// Looks at the clock, at committed tokens and at estimates alone. `cost` is not owned; the decoder
// may correct it between rounds (DecoderOptions::cost). kUnsupported if two drafters want different
// taps. Requires at least one drafter.
Expected<std::unique_ptr<Drafter>> make_controller(std::vector<std::unique_ptr<Drafter>> drafters,
                                                   const PassCost& cost,
                                                   const ControllerOptions& options);

}  // namespace aerie

// Lets a drafter that was asked for by name draft where it pays, and decodes plainly where it does
// not.
#pragma once

#include <functional>
#include <memory>

#include "draft/auto/pass_cost.h"
#include "draft/drafter.h"

namespace aerie {

struct GateOptions {
  int max_rows = 1 << 20;  // of a pass: no more roots and nodes than this, beside prompts' rows
  int max_nodes = 64;      // of a sequence, as the requests will have it
  // Drafts must promise this much more than plain decoding, so that what is uncertain in costs and
  // chances is no loss.
  double margin = 0.04;
  // Seconds on a clock that only rises; none: the steady clock. With the machine's clock what is
  // drafted differs from run to run.
  std::function<double()> clock;
};

// What `drafter` drafts it drafts as its settings say, whole or not at all. A drafter that costs
// next to nothing is asked in every round, and its tree is verified where what it promises,
// corrected by what came true of earlier ones, makes up for the longer pass. One that takes time,
// and one whose trees cannot be judged node by node (drawn tokens, rows of its own), is tried for
// some rounds, and from then on asked where what that brought of late makes up for its time and for
// the rows. Where it does not, it is looked at again for two rounds, at first soon, then at
// distances that double, and never for more than a hundredth of the time that plain decoding takes.
//
// Costs are those of `cost`, of the drafter's own calls, and of whole rounds with and without
// drafts, for which a round is now and then left plain.
//
// Looks at the clock, at committed tokens and at estimates alone, never at what was drawn. `cost`
// is not owned; the decoder may correct it between rounds (DecoderOptions::cost).
std::unique_ptr<Drafter> make_gate(std::unique_ptr<Drafter> drafter, const PassCost& cost,
                                   const GateOptions& options);

}  // namespace aerie

// What the pass of a round costs beside what has to be computed in it whatever is drafted.
#pragma once

#include <span>

#include "draft/auto/pass_cost.h"
#include "draft/drafter.h"

namespace aerie {

// Not thread-safe. The costs must outlive it.
class RoundCost {
 public:
  explicit RoundCost(const PassCost& cost) : cost_(cost) {}

  // Of the round that these requests are of, all of those that are drafted for; at least one.
  void start(std::span<const DraftRequest> requests) {
    context_ = 0.0;
    for (const DraftRequest& request : requests) {
      context_ += static_cast<double>(request.tokens.size()) / static_cast<double>(requests.size());
    }
    roots_ = requests[0].other_tokens + static_cast<int>(requests.size());
    prompt_rows_ = requests[0].other_rows - requests[0].other_tokens;
    prompt_seconds_ = cost_.seconds({roots_ + prompt_rows_, roots_, context_}) - plain(roots_);
  }

  // Of all sequences that bring a token.
  int roots() const { return roots_; }
  // Rows of prompts in the pass. They have to be computed some time, whatever is drafted.
  int prompt_rows() const { return prompt_rows_; }
  // What a pass of so many rows of so many sequences takes, without prompts.
  double apart(int rows, int sequences) const { return cost_.seconds({rows, sequences, context_}); }
  // What a pass of so many roots takes without nodes.
  double plain(int roots) const { return apart(roots, roots); }
  // What a pass of so many roots and nodes takes, that of its prompts' rows left out.
  double seconds(int rows, int roots) const {
    return cost_.seconds({rows + prompt_rows_, roots, context_}) - prompt_seconds_;
  }

 private:
  const PassCost& cost_;
  double context_ = 0.0;  // tokens of a sequence, in the mean
  int roots_ = 1;
  int prompt_rows_ = 0;
  double prompt_seconds_ = 0.0;
};

}  // namespace aerie

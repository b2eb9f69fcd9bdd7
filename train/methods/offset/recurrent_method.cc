#include "train/methods/offset/recurrent_method.h"

#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

namespace aerie::train {

Expected<OffsetHeads> recurrent_offsets(Target& target, const OffsetHeadsOptions& options) {
  if (options.loss.features > 0.0) {
    return Status(StatusCode::kInvalidArgument,
                  "a recurrent state cannot be held against the target's: no weight for features");
  }
  return OffsetHeads::create(target, options);
}

RecurrentMethod::RecurrentMethod(OffsetHeads offsets) : offsets_(std::move(offsets)) {
  needs_.last = true;
  if (const at::Tensor& ids = offsets_.draft_ids(); ids.defined()) {
    parameters_.add_draft_ids(ids);
  }
}

Expected<Figures> RecurrentMethod::accumulate(const Batch& batch, double scale,
                                              at::Generator& /*generator*/, bool train) {
  const at::AutoGradMode gradients(train);
  const at::Tensor states = offsets_.states(batch);
  const auto say = [&](int head, const at::Tensor& rows) -> Expected<OffsetHeads::Output> {
    std::vector<at::Tensor> tokens;
    for (int i = 0; i <= head; ++i) tokens.push_back(batch.tokens.index_select(0, rows + (1 + i)));
    return OffsetHeads::Output{forward(states.index_select(0, rows), at::stack(tokens)), {}};
  };
  return offsets_.accumulate(batch, states, scale, train, say);
}

}  // namespace aerie::train

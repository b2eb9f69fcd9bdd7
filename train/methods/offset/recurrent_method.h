// What ReDrafter and MLPSpeculator have in common as they are trained: a state that each drafted
// token goes into, and logits from it at each depth.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "base/status.h"
#include "train/methods/offset/offset_heads.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"

namespace aerie::train {

// OffsetHeads::create(). kInvalidArgument for a loss of features, too: these states are not the
// target's.
Expected<OffsetHeads> recurrent_offsets(Target& target, const OffsetHeadsOptions& options);

// Head i of OffsetHeads is what the method says i tokens behind the root.
class RecurrentMethod : public Method {
 public:
  const MethodNeeds& needs() const final { return needs_; }
  Parameters& parameters() final { return parameters_; }
  double weight(const Batch& batch) const final { return offsets_.weight(batch); }
  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) final;

 protected:
  explicit RecurrentMethod(OffsetHeads offsets);

  // `states`: of the target, normed, in these rows; `tokens`: int64 [depth + 1, rows], the root and
  // the drafted ones behind it.
  // Returns logits [rows, draft vocabulary].
  virtual at::Tensor forward(const at::Tensor& states, const at::Tensor& tokens) const = 0;

  const OffsetHeads& offsets() const { return offsets_; }
  const Parameters& stored() const { return parameters_; }

 private:
  OffsetHeads offsets_;
  MethodNeeds needs_;
  Parameters parameters_;
};

}  // namespace aerie::train

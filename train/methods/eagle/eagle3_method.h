// EAGLE-3 (2503.01840): a head that drafts from three of the target's streams, trained by running
// it on its own outputs as drafting does (the paper's training-time test).
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "base/status.h"
#include "train/methods/eagle/eagle3_head.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"
#include "train/nn/losses.h"
#include "train/nn/ops.h"

namespace aerie::train {

struct Eagle3Options {
  Eagle3HeadOptions head = {};
  int steps = 7;            // of the training-time test; 1: none
  double step_decay = 0.8;  // step j weighs step_decay^j
  // The share of the training behind which the head is run on its own outputs; before it is one
  // step alone, which costs a fraction and teaches what the others hang on. 0: from the start.
  double test_from = 0.0;
  Divergence loss = Divergence::kForwardKl;
  int depth = 5;  // of the drafts by which the head is judged, and which its configuration names
};

// The training-time test: step j of row t is given the token at t + 1 + j and, in the place of the
// target's streams, what the row itself handed on in step j - 1. It sees rows up to t as they were
// in step 0, and of later steps its own row alone, as drafting would. Gradients flow through all
// steps.
class TrainingTimeTest {
 public:
  // Both must outlive it.
  TrainingTimeTest(const Eagle3Head& head, const Batch& batch) : head_(head), batch_(batch) {}

  // Runs the next step and returns the stream behind the layer of `rows`, int64, ascending: of the
  // first step any of the batch's, later some of those of the step before (an error of the program
  // if not).
  at::Tensor step(const at::Tensor& rows);

 private:
  void keep(const at::Tensor& rows);
  at::Tensor run();

  const Eagle3Head& head_;
  const Batch& batch_;
  int step_ = 0;
  at::Tensor rows_;            // that the next step can run
  at::Tensor g_;               // of these, what they are given
  at::Tensor keys_, values_;   // of all rows, of the first step
  std::vector<OwnEntry> own_;  // of these rows, of the steps since
};

Expected<std::unique_ptr<Method>> make_eagle3(Target& target, const Eagle3Options& options,
                                              at::Generator& generator);

}  // namespace aerie::train

// Training of Medusa's heads (Cai et al. 2024, 2401.10774): for a target that stays as it is
// (Medusa-1), or together with it (Medusa-2).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "train/methods/offset/medusa_heads.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"

namespace aerie::train {

// Errors are those of MedusaHeads::create(). The target must outlive the method.
Expected<std::unique_ptr<Method>> make_medusa(Target& target, const MedusaOptions& options,
                                              at::Generator& generator);

// As in the paper. It has the heads learn at four times the rate of the target: rates are given for
// the target.
struct Medusa2Options {
  MedusaOptions heads;
  double heads_weight = 0.2;  // of the heads' losses, beside the target's own
  double heads_rate = 4.0;    // of the learning rate
  double heads_alone = 0.5;   // the share of the training in which the target stays as it is
  int64_t rank = 32;          // of what is added to each matrix of the target's layers (LoRA,
  double alpha = 16.0;        // 2106.09685): alpha / rank * b a
  // The target is held to what it was, by KL, where it said something itself; false: to the tokens.
  bool distill = true;
};

// The target changes, so what is drafted for, and lossless with respect to, is the model that
// write() puts beside the heads: model.gguf, a whole GGUF file. Its adapters are merged into F16
// (adapted_file.h). The first stage is Medusa-1; figures of the second are "target", the target's
// own loss, and those of the heads.
//
// Errors are those of MedusaHeads::create() and LlamaModel::cut(), and kInvalidArgument for options
// out of range. The target must outlive the method.
Expected<std::unique_ptr<Method>> make_medusa2(Target& target, const Medusa2Options& options,
                                               at::Generator& generator);

}  // namespace aerie::train

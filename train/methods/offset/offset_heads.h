// What heads are held to that draft a fixed distance ahead: Medusa's, Hydra's, and each depth of
// ReDrafter's and MLPSpeculator's. Head i, counted from 0, says in row t, made of the target's
// state at position t, which token comes at t + 2 + i. (At t + 1 is the root, which the target has
// said itself.)
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "train/batches/batch.h"
#include "train/methods/setting_list.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"
#include "train/nn/losses.h"

namespace aerie::train {

// The loss of a row of head i is decay^(i + 1) times the sum of the parts with their weights.
struct OffsetLoss {
  double labels = 1.0;    // of -log q(the token that came)
  double teacher = 0.0;   // of the distance of the target's own distribution there
  double features = 0.0;  // of smooth L1 between a head's state and the target's, normed, there
  double decay = 1.0;
  Divergence divergence = Divergence::kForwardKl;  // that distance
};

struct OffsetHeadsOptions {
  int heads = 1;
  int blocks = 1;  // of a head, whose they are
  // The target's ids that can be drafted, ascending; empty: all. The target's distribution is then
  // that of these tokens alone; a label beyond them gives no loss.
  std::vector<int32_t> vocabulary;
  OffsetLoss loss;
};

// Settings that Medusa's and Hydra's heads have in common.
void add_head_shape(SettingList& settings, int& heads, int& blocks, bool& bf16,
                    std::vector<int32_t>& vocabulary);

// Those of the loss but for features; all but the distance go without the settings named.
void add_offset_loss(SettingList& settings, OffsetLoss& loss,
                     const std::vector<std::string>& excludes = {});

// Neither weights nor gradients are kept here.
class OffsetHeads {
 public:
  // What a head makes of rows.
  struct Output {
    at::Tensor logits;  // [rows, draft vocabulary]
    at::Tensor state;   // [rows, hidden], what the output matrix was given; for a loss of features
  };
  // Of head `head` for these rows of the batch, int64 [rows] on the batch's device.
  using Forward = std::function<Expected<Output>(int head, const at::Tensor& rows)>;

  // kInvalidArgument, naming what is wrong, for a vocabulary that is not ascending ids of the
  // target's, for heads that are none or more than a draft can be deep, for blocks that are none
  // or more than 64, and weights below 0 or all 0. The target must outlive the object.
  static Expected<OffsetHeads> create(Target& target, const OffsetHeadsOptions& options);

  // The target's final norm of Batch::last: [rows, hidden]. No gradient.
  at::Tensor states(const Batch& batch) const;

  // Rows that head 0 is held to in: those whose root and next token the target generated.
  double weight(const Batch& batch) const;

  // Method::accumulate(). Logits are made for some rows at a time and their gradients taken at
  // once, so that they never take more than a few hundred megabytes. `states`: of states(). Figures
  // are "loss" and, for each head, "loss_1" (unweighted), "hit_1" (how often its first choice is
  // the token that came) and, if there is a teacher and `train` is false, "accepted_1" (how much
  // of its distribution the target's has in common with it), ...
  Expected<Figures> accumulate(const Batch& batch, const at::Tensor& states, double scale,
                               bool train, const Forward& forward) const;

  int heads() const { return options_.heads; }
  // int64 [draft vocabulary]: the target's ids; undefined: all of them.
  const at::Tensor& draft_ids() const { return draft_ids_; }
  // [draft vocabulary, hidden]: of the target's output matrix.
  const at::Tensor& target_rows() const { return target_rows_; }

 private:
  struct Chunk;

  OffsetHeads() = default;
  Status check() const;
  at::Tensor supervised(const Batch& batch) const;
  at::Tensor rows_of(const Batch& batch, const at::Tensor& starts, const at::Tensor& places,
                     int head, at::Tensor& kept) const;
  Status accumulate_head(const Batch& batch, const Chunk& chunk, int head, const Forward& forward,
                         at::Tensor& sums) const;

  const Target* target_ = nullptr;
  OffsetHeadsOptions options_;
  at::Tensor norm_, target_rows_, draft_ids_;
  at::Tensor draft_index_;  // int64 [vocab]: the place of each of the target's ids, or kNoLabel
};

}  // namespace aerie::train

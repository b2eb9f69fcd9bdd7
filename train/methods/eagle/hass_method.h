// HASS (2408.15766): EAGLE's network, trained on the features that it will have while it drafts:
// its own, from passes over the same rows.
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "base/status.h"
#include "train/methods/eagle/eagle_head.h"
#include "train/methods/setting_list.h"
#include "train/methods/target.h"
#include "train/methods/training_method.h"

namespace aerie::train {

struct HassOptions {
  EagleHeadOptions head = {};
  int passes = 3;  // 1: EAGLE's training
  // Uniform noise on the target's features, up to so much either way in a text of 512 tokens, and
  // 512 / length of that in others, as the code of EAGLE has it.
  double noise = 0.1;
  EagleLoss loss = {.top = 1.0};
  // The share of the training from which loss.top counts: published heads had 40 of 50 epochs
  // without.
  double top_from = 0.8;
  int depth = 5;  // of the drafts by which the head is judged
};

Expected<std::unique_ptr<Method>> make_hass(Target& target, const HassOptions& options,
                                            at::Generator& generator);

// What EAGLE can be told, too.
void add_eagle_settings(SettingList& settings, EagleHeadOptions& head, double& noise,
                        EagleLoss& loss);

// HassOptions::noise for features [rows, width] of such documents, on the CPU.
at::Tensor feature_noise(const Documents& documents, int64_t width, double noise,
                         at::Generator& generator);

// What rows read as features in a pass: the outputs of the pass before it [rows, hidden], each for
// the next row of its document; the first row of a document keeps the true one. No gradient.
at::Tensor next_features(const Batch& batch, const at::Tensor& outputs,
                         const at::Tensor& true_features);

}  // namespace aerie::train

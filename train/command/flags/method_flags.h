// The flags of every method, one file for each family; train/methods/training_methods.h says what
// they do. Defaults are those of papers and of their authors' code, where these give any.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "train/methods/eagle/eagle3_head.h"
#include "train/methods/training_methods.h"

namespace aerie::train {

void set_eagle_defaults(TrainOptions& options);
MakeMethod add_eagle_flags(CLI::App& app);
MakeMethod add_hass_flags(CLI::App& app);

void set_eagle3_defaults(TrainOptions& options);
MakeMethod add_eagle3_flags(CLI::App& app);

void set_peagle_defaults(TrainOptions& options);
MakeMethod add_peagle_flags(CLI::App& app);

void set_distill_defaults(TrainOptions& options);
MakeMethod add_distill_flags(CLI::App& app);
void set_layerskip_defaults(TrainOptions& options);
MakeMethod add_layerskip_flags(CLI::App& app);

void set_mtp_defaults(TrainOptions& options);
MakeMethod add_mtp_flags(CLI::App& app);

void set_medusa_defaults(TrainOptions& options);
MakeMethod add_medusa_flags(CLI::App& app);
void set_medusa2_defaults(TrainOptions& options);
MakeMethod add_medusa2_flags(CLI::App& app);
void set_hydra_defaults(TrainOptions& options);
MakeMethod add_hydra_flags(CLI::App& app);

// Flags that stand for the same in several methods.
inline constexpr const char* kDivergences = "kl, reverse-kl, js, tv, nla, lk";

inline void add_depth_flag(CLI::App& app, int& depth) {
  app.add_option("--depth", depth, "Tokens of a draft, for evaluation and for those who load it")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
}

inline void add_draft_vocab_flag(CLI::App& app, int64_t& size) {
  app.add_option("--draft-vocab", size,
                 "Draft only the so many most frequent tokens of the data; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 30));
}

// Of EAGLE-3's head, which P-EAGLE has, too.
inline void add_tap_flags(CLI::App& app, Eagle3HeadOptions& head) {
  app.add_option("--tap-layers", head.tap_layers,
                 "Layers whose input is read, separated by commas (default: 2, half, third last)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--norm-before-residual", head.norm_before_residual,
               "The residual begins behind the norm");
  app.add_flag("--fc-norm", head.fc_norm, "Norm each stream before they are joined");
}

inline void add_intermediate_flag(CLI::App& app, int64_t& width) {
  app.add_option("--intermediate", width, "Width of the feed-forward; 0: the target's")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 24));
}

}  // namespace aerie::train

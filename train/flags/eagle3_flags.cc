#include <memory>

#include "train/flags/method_flags.h"
#include "train/methods/eagle3.h"
#include "train/methods/peagle.h"
#include "train/vocabulary.h"

namespace aerie::train {
namespace {

struct Eagle3Flags {
  Eagle3Options options;
  int64_t draft_vocab = 0;
  std::string loss;
};

struct PEagleFlags {
  PEagleOptions options;
  int64_t draft_vocab = 0;
  std::string loss;
};

void add_head_flags(CLI::App& app, Eagle3HeadOptions& head, int64_t& draft_vocab,
                    std::string& loss) {
  app.add_option("--tap-layers", head.tap_layers,
                 "Layers whose input is read, separated by commas (default: 2, half, third last)")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_draft_vocab_flag(app, draft_vocab);
  app.add_option("--loss", loss, std::string("Distance from the target: ") + kDivergences)
      ->capture_default_str();
  add_intermediate_flag(app, head.intermediate);
  app.add_flag("--norm-before-residual", head.norm_before_residual,
               "The residual begins behind the norm");
  app.add_flag("--fc-norm", head.fc_norm, "Norm each stream before they are joined");
}

}  // namespace

void set_eagle3_defaults(TrainOptions& options) {
  options.schedule = {.rate = 1e-4, .warmup = 0.015, .floor = 0.0};
  options.clip_norm = 0.5;
}

MakeMethod add_eagle3_flags(CLI::App& app) {
  auto flags = std::make_shared<Eagle3Flags>();
  Eagle3Options& o = flags->options;
  flags->loss = divergence_name(o.loss);
  add_head_flags(app, o.head, flags->draft_vocab, flags->loss);
  app.add_option("--ttt-steps", o.steps, "Steps of the training-time test; 1: none")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--step-decay", o.step_decay, "Step j weighs so much to the power of j")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  add_depth_flag(app, o.depth);
  app.add_flag("--norm-output", o.head.norm_output, "Hand on what has been normed");
  return [flags](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    Eagle3Options options = flags->options;
    AERIE_ASSIGN_OR_RETURN(options.loss, parse_divergence(flags->loss));
    if (flags->draft_vocab > 0) {
      options.head.vocabulary = most_frequent(inputs.token_counts, flags->draft_vocab);
    }
    return make_eagle3(inputs.target, options, inputs.generator);
  };
}

void set_peagle_defaults(TrainOptions& options) {
  options.schedule = {.rate = 1e-4, .warmup = 0.02, .floor = 0.0};
  options.clip_norm = 1.0;
}

MakeMethod add_peagle_flags(CLI::App& app) {
  auto flags = std::make_shared<PEagleFlags>();
  PEagleOptions& o = flags->options;
  flags->loss = divergence_name(o.loss);
  add_head_flags(app, o.head, flags->draft_vocab, flags->loss);
  app.add_option("--layers", o.head.layers, "Layers of the head")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--depths", o.sampling.depths, "Tokens of a draft")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--kept", o.sampling.kept, "Share of a depth's rows that the next one keeps")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--least", o.sampling.least, "Share of all rows that every depth keeps")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--segments", o.segments,
                 "Parts that a batch is cut into, to save memory; 0: as many as it takes")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  return [flags](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    PEagleOptions options = flags->options;
    AERIE_ASSIGN_OR_RETURN(options.loss, parse_divergence(flags->loss));
    if (flags->draft_vocab > 0) {
      options.head.vocabulary = most_frequent(inputs.token_counts, flags->draft_vocab);
    }
    return make_peagle(inputs.target, options, inputs.generator);
  };
}

}  // namespace aerie::train

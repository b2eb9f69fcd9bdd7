#include <memory>

#include "train/batches/training_vocabulary.h"
#include "train/command/flags/method_flags.h"
#include "train/methods/eagle/eagle3_method.h"

namespace aerie::train {
namespace {

struct Eagle3Flags {
  Eagle3Options options;
  int64_t draft_vocab = 0;
  std::string loss;
};

}  // namespace

void set_eagle3_defaults(TrainOptions& options) {
  options.schedule = {.rate = 1e-4, .warmup = 0.015, .floor = 0.0};
  options.clip_norm = 0.5;
}

MakeMethod add_eagle3_flags(CLI::App& app) {
  auto flags = std::make_shared<Eagle3Flags>();
  Eagle3Options& o = flags->options;
  flags->loss = divergence_name(o.loss);
  add_tap_flags(app, o.head);
  add_draft_vocab_flag(app, flags->draft_vocab);
  app.add_option("--ttt-steps", o.steps, "Steps of the training-time test; 1: none")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--step-decay", o.step_decay, "Step j weighs so much to the power of j")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--loss", flags->loss, std::string("Distance from the target: ") + kDivergences)
      ->capture_default_str();
  add_depth_flag(app, o.depth);
  add_intermediate_flag(app, o.head.intermediate);
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

}  // namespace aerie::train

#include <memory>

#include "train/batches/training_vocabulary.h"
#include "train/command/flags/method_flags.h"
#include "train/methods/peagle/peagle_method.h"

namespace aerie::train {
namespace {

struct PEagleFlags {
  PEagleOptions options;
  int64_t draft_vocab = 0;
  std::string loss;
};

}  // namespace

void set_peagle_defaults(TrainOptions& options) {
  options.schedule = {.rate = 1e-4, .warmup = 0.015, .floor = 0.0};
  options.clip_norm = 1.0;
}

MakeMethod add_peagle_flags(CLI::App& app) {
  auto flags = std::make_shared<PEagleFlags>();
  PEagleOptions& o = flags->options;
  flags->loss = divergence_name(o.loss);
  add_tap_flags(app, o.head);
  add_draft_vocab_flag(app, flags->draft_vocab);
  app.add_option("--layers", o.head.layers, "Layers of the head")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--depth", o.sampling.depths, "Tokens of a draft, all from one pass")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--kept", o.sampling.kept,
                 "Of the supervised tokens so many are asked at depth 1, this squared at 2, ...")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--least-kept", o.sampling.least, "At any depth no fewer than this share")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--segments", o.segments,
                 "Parts of a batch that are trained one after the other, which takes less memory; "
                 "0: by its length")
      ->capture_default_str()
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--mask-token", o.head.mask_token,
                 "The token that stands for what is not known yet; -1: the last one")
      ->capture_default_str();
  app.add_flag("--train-embedding", o.head.train_embedding,
               "Train and store an embedding of its own");
  app.add_option("--loss", flags->loss, std::string("Distance from the target: ") + kDivergences)
      ->capture_default_str();
  add_intermediate_flag(app, o.head.intermediate);
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

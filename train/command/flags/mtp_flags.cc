#include <memory>

#include "train/command/flags/method_flags.h"
#include "train/methods/mtp_method.h"

namespace aerie::train {
namespace {

struct MtpFlags {
  MtpOptions options;
  std::string loss;
};

}  // namespace

void set_mtp_defaults(TrainOptions& options) {
  options.schedule = {.rate = 1e-4, .warmup = 0.02, .floor = 0.1};
  options.clip_norm = 1.0;
}

MakeMethod add_mtp_flags(CLI::App& app) {
  auto flags = std::make_shared<MtpFlags>();
  MtpOptions& o = flags->options;
  app.add_option("--unroll", o.steps, "Tokens that each row drafts")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--step-decay", o.step_decay, "Step j weighs so much to the power of j")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--loss", flags->loss,
                 std::string("Distance from the target: ") + kDivergences +
                     " (default: cross entropy with the text)");
  app.add_flag("!--feature-before-norm", o.module.feature_normed,
               "Read the target's state in front of its final norm");
  app.add_flag("!--hand-on-before-norm", o.module.handed_normed,
               "Hand on what is in front of the module's norm");
  app.add_flag("--store-tables", o.module.store_tables,
               "Store copies of the target's embedding and head, for loaders that want them");
  add_intermediate_flag(app, o.module.intermediate);
  add_depth_flag(app, o.depth);
  return [flags](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    MtpOptions options = flags->options;
    if (!flags->loss.empty()) {
      AERIE_ASSIGN_OR_RETURN(options.loss, parse_divergence(flags->loss));
    }
    return make_mtp(inputs.target, options, inputs.generator);
  };
}

}  // namespace aerie::train

#include <memory>

#include "train/command/flags/method_flags.h"
#include "train/methods/eagle/eagle_method.h"
#include "train/methods/eagle/hass_method.h"

namespace aerie::train {
namespace {

void add_head_flags(CLI::App& app, EagleHeadOptions& head, EagleLoss& loss, double& noise) {
  app.add_flag("!--no-bias", head.bias, "The joining matrix has no bias, as for LLaMA-3");
  app.add_flag("--store-embedding", head.store_embedding,
               "Store a copy of the target's embedding, for loaders that want one");
  add_intermediate_flag(app, head.intermediate);
  app.add_option("--noise", noise,
                 "Half the range of uniform noise on features in a text of 512 tokens")
      ->capture_default_str();
  app.add_option("--feature-weight", loss.feature, "Weighs the distance of features")
      ->capture_default_str();
  app.add_option("--token-weight", loss.token, "Weighs the cross entropy of tokens")
      ->capture_default_str();
  app.add_option("--top-weight", loss.top, "Weighs that of the target's likeliest tokens")
      ->capture_default_str();
  app.add_option("--top-tokens", loss.top_tokens, "How many these are")->capture_default_str();
}

}  // namespace

void set_eagle_defaults(TrainOptions& options) {
  options.schedule = {.rate = 3e-5, .warmup = 0.0025, .decay = Decay::kLinear, .floor = 0.0};
  options.clip_value = 0.5;
}

MakeMethod add_eagle_flags(CLI::App& app) {
  auto options = std::make_shared<EagleOptions>();
  add_head_flags(app, options->head, options->loss, options->noise);
  add_depth_flag(app, options->depth);
  return [options](const MethodInputs& inputs) {
    return make_eagle(inputs.target, *options, inputs.generator);
  };
}

MakeMethod add_hass_flags(CLI::App& app) {
  auto options = std::make_shared<HassOptions>();
  add_head_flags(app, options->head, options->loss, options->noise);
  app.add_option("--passes", options->passes, "Passes over the same rows; 1: as EAGLE")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--top-from", options->top_from,
                 "Share of the training after which --top-weight counts")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  add_depth_flag(app, options->depth);
  return [options](const MethodInputs& inputs) {
    return make_hass(inputs.target, *options, inputs.generator);
  };
}

}  // namespace aerie::train

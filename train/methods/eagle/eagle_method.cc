#include "train/methods/eagle/eagle_method.h"

#include "train/methods/eagle/hass_method.h"
#include "train/methods/training_methods.h"

namespace aerie::train {
namespace {

MakeMethod declare_eagle(SettingList& settings) {
  const auto o = std::make_shared<EagleOptions>();
  add_eagle_settings(settings, o->head, o->noise, o->loss);
  settings.add_depth(o->depth);
  return made_of(o, make_eagle);
}

}  // namespace

// HASS with a single pass.
Expected<std::unique_ptr<Method>> make_eagle(Target& target, const EagleOptions& options,
                                             at::Generator& generator) {
  const HassOptions once = {.head = options.head,
                            .passes = 1,
                            .noise = options.noise,
                            .loss = options.loss,
                            .top_from = 0.0,
                            .depth = options.depth};
  return make_hass(target, once, generator);
}

extern const TrainingMethod kEagleTraining;
constinit const TrainingMethod kEagleTraining = {
    .name = "eagle",
    .what = "EAGLE: a layer that foresees the target's features",
    .drafter = "eagle",
    .schedule = {.rate = 3e-5, .warmup = 0.0025, .decay = Decay::kLinear, .floor = 0.0},
    .clip_value = 0.5,
    .declare = declare_eagle,
};

}  // namespace aerie::train

#include "train/methods/eagle/eagle_method.h"

#include "train/methods/eagle/hass_method.h"

namespace aerie::train {

Expected<std::unique_ptr<Method>> make_eagle(Target& target, const EagleOptions& options,
                                             at::Generator& generator) {
  HassOptions once;
  once.head = options.head;
  once.passes = 1;
  once.noise = options.noise;
  once.loss = options.loss;
  once.top_from = 0.0;
  once.depth = options.depth;
  return make_hass(target, once, generator);
}

}  // namespace aerie::train

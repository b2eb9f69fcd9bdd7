#include "train/methods/training_methods.h"

#include <array>

#include "train/command/flags/method_flags.h"

namespace aerie::train {

std::span<const MethodEntry> method_entries() {
  static constexpr std::array kEntries = {
      MethodEntry{"eagle3", "EAGLE-3: a layer on three of the target's streams",
                  set_eagle3_defaults, add_eagle3_flags},
      MethodEntry{"p-eagle", "P-EAGLE: the same, all tokens of a draft in one pass",
                  set_peagle_defaults, add_peagle_flags},
      MethodEntry{"distill", "A small model taught to say what the target says",
                  set_distill_defaults, add_distill_flags},
      MethodEntry{"eagle", "EAGLE: a layer that foresees the target's features", set_eagle_defaults,
                  add_eagle_flags},
      MethodEntry{"hass", "HASS: EAGLE's network, trained on its own features", set_eagle_defaults,
                  add_hass_flags},
      MethodEntry{"mtp", "A module for multi-token prediction, unrolled", set_mtp_defaults,
                  add_mtp_flags},
      MethodEntry{"medusa", "Medusa: heads that each foresee one token further",
                  set_medusa_defaults, add_medusa_flags},
      MethodEntry{"medusa2", "Medusa's heads together with a new target", set_medusa2_defaults,
                  add_medusa2_flags},
      MethodEntry{"hydra", "Hydra: heads that see the tokens drafted before theirs",
                  set_hydra_defaults, add_hydra_flags},
      MethodEntry{"layerskip", "LayerSkip: a new target that can be left early",
                  set_layerskip_defaults, add_layerskip_flags},
  };
  return kEntries;
}

}  // namespace aerie::train

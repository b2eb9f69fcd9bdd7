#include "train/registry.h"

#include <array>

#include "train/flags/method_flags.h"

namespace aerie::train {

std::span<const MethodEntry> method_entries() {
  static constexpr std::array kEntries = {
      MethodEntry{"eagle3", "EAGLE-3: a layer on three of the target's streams",
                  set_eagle3_defaults, add_eagle3_flags},
      MethodEntry{"eagle", "EAGLE: a layer that foresees the target's features", set_eagle_defaults,
                  add_eagle_flags},
      MethodEntry{"hass", "HASS: EAGLE's network, trained on its own features", set_eagle_defaults,
                  add_hass_flags},
      MethodEntry{"mtp", "A module for multi-token prediction, unrolled", set_mtp_defaults,
                  add_mtp_flags},
      MethodEntry{"medusa", "Medusa: heads that each foresee one token further",
                  set_medusa_defaults, add_medusa_flags},
      MethodEntry{"hydra", "Hydra: heads that see the tokens drafted before theirs",
                  set_hydra_defaults, add_hydra_flags},
  };
  return kEntries;
}

}  // namespace aerie::train

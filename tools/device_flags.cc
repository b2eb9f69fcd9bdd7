#include "tools/device_flags.h"

#include <CLI/CLI.hpp>

#include "base/errors.h"
#include "engine/placement/device_choice.h"
#include "tools/options.h"

namespace aerie {

void add_device_flags(CLI::App& app, DeviceFlags& flags) {
  offer(
      add_shown(app, "--device", flags.device,
                "What computes the model: cpu; cuda or cuda:N, a GPU of NVIDIA's; auto, the first "
                "GPU if it can; emulated, a GPU's code on the processor, to try it"),
      "auto,cpu,cuda,emulated");
  app.add_option("--n-gpu-layers", flags.layers,
                 "How many layers a device computes, the last ones; the processor has the others "
                 "(0: all of them; auto: as many as fit; default: all on the device)");
  app.add_option("--gpu-memory", flags.memory,
                 "What weights, cache and work may take of a device's memory: bytes (20G), or a "
                 "share of it (0.9; default: what is free)");
}

Status read_device_flags(const DeviceFlags& flags, EngineOptions& out) {
  AERIE_ASSIGN_OR_RETURN(out.device, in_context(parse_device(flags.device), "--device"));
  if (!flags.layers.empty()) {
    AERIE_ASSIGN_OR_RETURN(out.device_layers,
                           in_context(parse_device_layers(flags.layers), "--n-gpu-layers"));
  }
  if (!flags.memory.empty()) {
    AERIE_ASSIGN_OR_RETURN(out.device_memory,
                           in_context(parse_device_memory(flags.memory), "--gpu-memory"));
  }
  return {};
}

}  // namespace aerie

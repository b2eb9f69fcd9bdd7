// --device and what belongs to it.
#pragma once

#include <string>

#include "base/status.h"
#include "engine/engine_options.h"

namespace CLI {
class App;
}

namespace aerie {

struct DeviceFlags {
  std::string device = "auto";
  std::string layers;
  std::string memory;
};

// The flags must outlive `app`.
void add_device_flags(CLI::App& app, DeviceFlags& flags);
// After parsing. kInvalidArgument, naming the flag.
Status read_device_flags(const DeviceFlags& flags, EngineOptions& out);

}  // namespace aerie

// Opens devices by their names.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "kernels/device/device.h"

namespace aerie::device {

// "cuda:0", "cuda:1", ...: NVIDIA's GPUs, as the driver counts them; "emulated": the emulator.
// kUnsupported or kInvalidArgument, saying what to do, where it cannot be had.
Expected<std::unique_ptr<Device>> open(const std::string& name);

}  // namespace aerie::device

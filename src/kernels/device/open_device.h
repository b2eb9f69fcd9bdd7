// Devices by their names, as --device has them.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "kernels/device/device.h"

namespace aerie::device {

// "cuda" or "cuda:N", a GPU (load_cuda.h); "emulated", the same kernels on the processor, slowly:
// for tests. kInvalidArgument for another name.
Expected<std::unique_ptr<Device>> open(const std::string& name);

}  // namespace aerie::device

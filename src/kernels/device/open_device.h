// Devices by their names, as --device has them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "kernels/device/device.h"

namespace aerie::device {

// The N of "cuda:N"; nullopt: the name is none of a GPU's.
std::optional<int> gpu_number(std::string_view name);

// "cuda:N", a GPU (load_cuda.h); "emulated", the same kernels on the processor, slowly: for tests.
// kInvalidArgument for another name.
Expected<std::unique_ptr<Device>> open(const std::string& name);

}  // namespace aerie::device

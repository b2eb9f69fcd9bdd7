// What libaerie_cuda.so has for the program: functions of C's kind, the first of which is the same
// in every build.
#pragma once

#include <cstddef>

#include "kernels/device/device.h"

namespace aerie::device {

// kBuildId (device_build_id.h) of the build that the library is of: the others may be called if it
// is the program's.
using CudaBuildId = const char*();
inline constexpr const char* kCudaBuildId = "aerie_cuda_build_id";

enum class CudaOutcome : int { kOpened, kNoDriver, kNoSuchDevice, kTooOld, kFailed };

// Opens GPU `index`; the caller deletes `device`. If it cannot be had, `error` says why in at most
// `size` bytes with its 0.
using CudaOpen = CudaOutcome(int index, Device** device, char* error, size_t size);
inline constexpr const char* kCudaOpen = "aerie_cuda_open";

}  // namespace aerie::device

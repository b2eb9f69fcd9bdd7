// A library like libaerie_cuda.so on a machine where opening a GPU comes to what its index says.
#include <device_build_id.h>

#include <cstdio>

#include "kernels/device/cuda_library.h"

using aerie::device::CudaOutcome;
using aerie::device::Device;

extern "C" const char* aerie_cuda_build_id() {
#ifdef AERIE_OTHER_BUILD
  return "of another build";
#else
  return aerie::device::kBuildId;
#endif
}

extern "C" CudaOutcome aerie_cuda_open(int index, Device** /*device*/, char* error, size_t size) {
  std::snprintf(error, size, "that is how it is");
  return static_cast<CudaOutcome>(index);
}

// What stands before the first call of a device in libaerie_cuda.so.
#include "kernels/device/cuda_library.h"

#include <cuda_runtime.h>
#include <device_build_id.h>

#include <cstdio>

#include "kernels/device/device_impl.h"

namespace aerie::device {
namespace {

constexpr int kLeastMajor = 8;
constexpr size_t kLeastShared = size_t{99} << 10;  // that a block may have; products use it

// To ask whether the library has code for a GPU.
__global__ void nothing() {}

CudaOutcome driver_missing(char* error, size_t size) {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    std::snprintf(error, size,
                  "there is no NVIDIA driver (libcuda.so.1): install one for CUDA %d.%d or newer",
                  runtime / 1000, runtime % 1000 / 10);
  } else {
    std::snprintf(
        error, size,
        "the driver is for CUDA %d.%d, and this build needs %d.%d: install a newer driver",
        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  }
  return CudaOutcome::kNoDriver;
}

CudaOutcome count_devices(int& count, char* error, size_t size) {
  const cudaError_t counted = cudaGetDeviceCount(&count);
  switch (counted) {
    case cudaSuccess:
      return CudaOutcome::kOpened;
    case cudaErrorInsufficientDriver:
      return driver_missing(error, size);
    case cudaErrorNoDevice:
      std::snprintf(error, size, "the driver finds no GPU; does CUDA_VISIBLE_DEVICES hide it?");
      return CudaOutcome::kNoDriver;
    default:
      std::snprintf(error, size, "the driver does not answer: %s", cudaGetErrorString(counted));
      return CudaOutcome::kFailed;
  }
}

CudaOutcome check_device(int index, char* error, size_t size) {
  cudaDeviceProp properties;
  const cudaError_t asked = cudaGetDeviceProperties(&properties, index);
  if (asked != cudaSuccess) {
    std::snprintf(error, size, "the GPU does not answer: %s", cudaGetErrorString(asked));
    return CudaOutcome::kFailed;
  }
  if (properties.major < kLeastMajor) {
    std::snprintf(
        error, size,
        "%s is of compute capability %d.%d; %d.0 (Ampere) is the least that has what is needed",
        properties.name, properties.major, properties.minor, kLeastMajor);
    return CudaOutcome::kTooOld;
  }
  if (properties.sharedMemPerBlockOptin < kLeastShared) {
    std::snprintf(error, size,
                  "%s gives a block %zu KiB of shared memory, and kernels here take %zu: another GPU "
                  "is needed",
                  properties.name, properties.sharedMemPerBlockOptin >> 10, kLeastShared >> 10);
    return CudaOutcome::kTooOld;
  }
  cudaFuncAttributes attributes;
  const cudaError_t started = cudaSetDevice(index) == cudaSuccess
                                  ? cudaFuncGetAttributes(&attributes, nothing)
                                  : cudaGetLastError();
  if (started == cudaErrorNoKernelImageForDevice || started == cudaErrorUnsupportedPtxVersion) {
    std::snprintf(error, size,
                  "the library has no code for %s: build it with AERIE_CUDA_ARCHITECTURES=%d%d",
                  properties.name, properties.major, properties.minor);
    return CudaOutcome::kTooOld;
  }
  if (started != cudaSuccess) {
    std::snprintf(error, size, "%s cannot be used: %s", properties.name,
                  cudaGetErrorString(started));
    return CudaOutcome::kFailed;
  }
  return CudaOutcome::kOpened;
}

}  // namespace
}  // namespace aerie::device

extern "C" {

__attribute__((visibility("default"))) const char* aerie_cuda_build_id() {
  return aerie::device::kBuildId;
}

__attribute__((visibility("default"))) aerie::device::CudaOutcome aerie_cuda_open(
    int index, aerie::device::Device** device, char* error, size_t size) {
  using namespace aerie::device;
  int count = 0;
  if (const CudaOutcome counted = count_devices(count, error, size);
      counted != CudaOutcome::kOpened)
    return counted;
  if (index < 0 || index >= count) {
    std::snprintf(error, size, "there %s %d GPU%s, counted from 0", count == 1 ? "is" : "are",
                  count, count == 1 ? "" : "s");
    return CudaOutcome::kNoSuchDevice;
  }
  if (const CudaOutcome checked = check_device(index, error, size); checked != CudaOutcome::kOpened)
    return checked;
  *device = make_device(index, error, size);
  return *device != nullptr ? CudaOutcome::kOpened : CudaOutcome::kFailed;
}
}

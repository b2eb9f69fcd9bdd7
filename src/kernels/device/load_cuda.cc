#include "kernels/device/load_cuda.h"

#include <device_build_id.h>
#include <dlfcn.h>

#include <array>
#include <cstring>

#include "base/errors.h"
#include "base/system/parts.h"
#include "kernels/device/cuda_library.h"

namespace aerie::device {
namespace {

constexpr const char* kLibrary = "libaerie_cuda.so";

Status load_library(const std::string& named, CudaOpen*& open) {
  const std::string file = named.empty() ? find_part(kLibrary) : named;
  if (file.empty()) {
    return not_supported(
        "GPUs need {}, which is not beside this program: build it (cmake -DAERIE_CUDA=ON, "
        "docs/cuda.md), or take --device cpu",
        kLibrary);
  }
  const Expected<void*> library = open_part(file, PartNames::kOwn);
  if (!library.ok()) {
    return not_supported("{} cannot be loaded: {}", file, library.status().message());
  }
  auto* const build_id = reinterpret_cast<CudaBuildId*>(dlsym(*library, kCudaBuildId));
  open = reinterpret_cast<CudaOpen*>(dlsym(*library, kCudaOpen));
  if (build_id == nullptr || open == nullptr) {
    return not_supported("{} is no library of Aerie's for GPUs", file);
  }
  if (std::strcmp(build_id(), kBuildId) != 0) {
    return not_supported(
        "{} is of another build ({}) than this program ({}): build both of the same sources", file,
        build_id(), kBuildId);
  }
  return {};
}

}  // namespace

Expected<std::unique_ptr<Device>> open_cuda(int index, const std::string& library) {
  CudaOpen* open = nullptr;
  AERIE_RETURN_IF_ERROR(load_library(library, open));
  Device* device = nullptr;
  std::array<char, 512> error = {};
  const CudaOutcome outcome = open(index, &device, error.data(), error.size());
  if (outcome == CudaOutcome::kOpened) return std::unique_ptr<Device>(device);
  switch (outcome) {
    case CudaOutcome::kNoSuchDevice:
      return invalid_argument("{}", error.data());
    case CudaOutcome::kFailed:
      return resource_exhausted("{}", error.data());
    default:
      return not_supported("{}", error.data());
  }
}

}  // namespace aerie::device

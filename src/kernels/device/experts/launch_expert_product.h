// Which kernel a product of experts is.
#pragma once

#include "kernels/device/device.h"
#include "kernels/simt/simt_runtime.h"

namespace aerie::device {

cudaError_t launch_expert_product(const ExpertProduct& args, cudaStream_t stream);

}  // namespace aerie::device

// What experts take of a device.
#pragma once

#include "kernels/device/device.h"
#include "kernels/simt/simt_runtime.h"

namespace aerie::device {

cudaError_t launch_route(const Route& args, cudaStream_t stream);
cudaError_t launch_expert_product(const ExpertProduct& args, cudaStream_t stream);
cudaError_t launch_add_experts(const AddExperts& args, cudaStream_t stream);

}  // namespace aerie::device

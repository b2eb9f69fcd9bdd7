// Which kernel a product is.
#pragma once

#include "kernels/device/device.h"
#include "kernels/simt/simt_runtime.h"

namespace aerie::device {

cudaError_t launch_product(const Product& args, cudaStream_t stream);

}  // namespace aerie::device

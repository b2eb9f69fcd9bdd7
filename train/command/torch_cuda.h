// The part of LibTorch that computes on NVIDIA's GPUs.
#pragma once

#include "base/status.h"

namespace aerie::train {

// Loads it, unless it is there. Its kernels register themselves, so that no program is linked to
// it: one that is built with an installed PyTorch runs where CUDA is not, and starts as fast as
// without. kUnsupported, with the reason, if this LibTorch has no such part, or it cannot be
// loaded.
Status load_cuda();

}  // namespace aerie::train

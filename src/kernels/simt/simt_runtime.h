// The part of CUDA's runtime that a device's implementation needs: the real one under nvcc, else
// one that is as late as the real one may be (emulated_runtime.h).
#pragma once

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include "kernels/simt/emulated_runtime.h"
#endif

// The launches of layers with linear attention.
#pragma once

#include "kernels/device/linear/linear_ops.h"
#include "kernels/simt/simt_runtime.h"

namespace aerie::device {

cudaError_t launch_convolve(const Convolve& args, cudaStream_t stream);
cudaError_t launch_scan_states(const ScanStates& args, cudaStream_t stream);
cudaError_t launch_gate_heads(const GateHeads& args, cudaStream_t stream);
cudaError_t launch_gate_groups(const GateGroups& args, cudaStream_t stream);
cudaError_t launch_move_states(const MoveStates& args, cudaStream_t stream);

}  // namespace aerie::device

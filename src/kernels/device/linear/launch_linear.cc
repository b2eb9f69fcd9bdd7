#include "kernels/device/linear/launch_linear.h"

#include "kernels/device/linear/convolve.h"
#include "kernels/device/linear/gate_groups.h"
#include "kernels/device/linear/gate_heads.h"
#include "kernels/device/linear/move_states.h"
#include "kernels/device/linear/scan_states.h"

namespace aerie::device {
namespace {

unsigned blocks_of(int all, int each) {
  return static_cast<unsigned>((all + each - 1) / each);
}

template <int kEach, bool kSubtract>
cudaError_t launch_scan(const ScanStates& args, cudaStream_t stream) {
  using Scan = StateScan<kEach, kSubtract>;
  const StateShape& shape = args.layer.shape;
  const unsigned blocks =
      static_cast<unsigned>(scan_blocks(shape)) + blocks_of(shape.channels, kScanThreads);
  return simt::launch(scan_states_kernel<kEach, kSubtract>,
                      {dim3(blocks, static_cast<unsigned>(args.layer.most_sequences)),
                       dim3(kScanThreads), sizeof(ScanBatches<Scan::kKeys>), true},
                      stream, args);
}

template <int kEach>
cudaError_t launch_scan(const ScanStates& args, cudaStream_t stream) {
  return args.subtract ? launch_scan<kEach, true>(args, stream)
                       : launch_scan<kEach, false>(args, stream);
}

template <int kEach>
cudaError_t launch_convolution(const Convolve& args, cudaStream_t stream) {
  const int warps = ConvolveWarps(args.layer, ConvolveWarp<kEach>::kWidth).all();
  return simt::launch(
      convolve_kernel<kEach>,
      {dim3(blocks_of(warps, kConvolveThreads / 32), static_cast<unsigned>(args.layer.most_rows)),
       dim3(kConvolveThreads), 0, true},
      stream, args);
}

}  // namespace

cudaError_t launch_convolve(const Convolve& args, cudaStream_t stream) {
  constexpr int kUsual = 4;
  if (args.layer.shape.key_dim <= ConvolveWarp<kUsual>::kWidth) {
    return launch_convolution<kUsual>(args, stream);
  }
  return launch_convolution<kMostStateDim / 32>(args, stream);
}

cudaError_t launch_scan_states(const ScanStates& args, cudaStream_t stream) {
  constexpr int kUsual = 16;
  if (args.layer.shape.key_dim <= kUsual * kScanShares) return launch_scan<kUsual>(args, stream);
  return launch_scan<kMostStateDim / kScanShares>(args, stream);
}

cudaError_t launch_gate_heads(const GateHeads& args, cudaStream_t stream) {
  return simt::launch(
      gate_heads_kernel,
      {dim3(blocks_of(args.heads, kGateThreads / 32), static_cast<unsigned>(args.most_rows)),
       dim3(kGateThreads), 0, true},
      stream, args);
}

cudaError_t launch_gate_groups(const GateGroups& args, cudaStream_t stream) {
  return simt::launch(
      gate_groups_kernel,
      {dim3(static_cast<unsigned>(args.groups), static_cast<unsigned>(args.most_rows)),
       dim3(kGroupThreads), sizeof(GateGroupsShared), true},
      stream, args);
}

cudaError_t launch_move_states(const MoveStates& args, cudaStream_t stream) {
  return simt::launch(move_states_kernel,
                      {dim3(blocks_of(args.shape.inputs + args.shape.channels, kMoveThreads),
                            static_cast<unsigned>(args.planes)),
                       dim3(kMoveThreads), 0, true},
                      stream, args);
}

}  // namespace aerie::device

// Kernels from one source for two machines. Under nvcc these words are CUDA; under any other C++20
// compiler each block runs as fibers on one thread of the processor (emulator.h), so that the
// sanitizers and a debugger see kernels as ordinary code.
//
// A kernel is written with CUDA's own words (__global__, __launch_bounds__, threadIdx, blockIdx,
// blockDim, gridDim, dim3, uint2, uint4, float2, float4, __syncthreads, __syncwarp) and with those
// of this folder:
//
//   SIMT_DEV                       a function that kernels call
//   SIMT_BOTH                      one that the host calls, too
//   SIMT_UNROLL, SIMT_UNROLL_BY(n) before a loop: its iterations become code of their own
//   simt::shared<T>()              the block's dynamic shared memory
//   simt::Array<T, N>              T[N]; the emulator checks indices
//   simt::load4/8/16, load16_cached  reads of what nothing writes while the kernel runs
//   simt::fetch_line               brings 128 bytes near that will be read; reads nothing, so that
//                                  they may be what launches write
//   simt::copy_async16, copy_commit, copy_wait<n>
//                                  from device into shared memory, in the background; other
//                                  threads need a __syncthreads() after the wait
//   simt::copy_async16_if          the same where its first argument holds, without a branch
//   simt::mma_bf16, mma_f16        the tensor cores' 16 x 8 x 16 product of a warp
//   simt::kHasGroups               whether what follows is there: Hopper alone has it
//   simt::Barrier                  in shared memory: barrier_begin(b, count), then barriers_begun()
//                                  and __syncthreads(); barrier_arrive(b) of so many threads ends a
//                                  phase, barrier_wait(b, n % 2) waits for the end of phase n
//   simt::copy_block               from device into shared memory in the background, a part of what
//                                  the barrier waits for; barrier_expect(b, bytes) arrives and says
//                                  how much is copied
//   simt::group_mma_bf16           d += weights x rows, of a group of four warps side by side (each
//                                  has 16 of 64 outputs and a fragment of mma_bf16's of its own)
//                                  and of 8 rows for each d[i]; d is set where the last argument is
//                                  false. In the background: d and the weights may not be touched
//                                  before group_wait, nor the rows be written
//   simt::group_fence, group_commit, group_wait<n>(d), group_keep
//                                  before products of what registers hold; the end of products that
//                                  are waited for together; until at most the last n of these are
//                                  under way; after that, that the weights were needed until now
//   simt::operand_of               rows of 64 k, 128 bytes each, as products take them: pieces of
//   16
//                                  bytes lie at their number ^ row % 8, groups of 8 rows at a
//                                  multiple of 1024 bytes; 16 of k further is 2 more. copy_block
//                                  brings them
//   simt::and_or                   (word & mask) | bits
//   simt::two_23_and_byte          2^23 and a word's byte, as a float
//   simt::shuffle, shuffle_xor     exchange within a warp; orders no memory
//   simt::warp_largest             of all lanes' words the largest, to all of them
//   simt::arrive_last, atomic_add  between blocks
//   simt::release_dependents, wait_for_previous
//                                  overlap of launches in order (`dependent` in Shape)
//   simt::fma, divide, square_root, reciprocal, exp, log_1p, tanh, erf, ...
//                                  the same bits on both
//   simt::launch(kernel, shape, stream, arguments...)
//
// All of it is compiled without contraction (-ffp-contract=off, -fmad=false): what is to be fused
// is spelt fma. Warps are whole: a block has a multiple of 32 threads, and all lanes of a warp take
// part in its collectives. Blocks do not wait for one another within a launch; the last one to
// arrive goes on (arrive_last). A launch that is `dependent` may begin while the one ahead of it
// runs: until wait_for_previous() it touches nothing that launches write, and every block of it
// calls that, lest the launch after it overtakes two.
#pragma once

#ifdef __CUDACC__
#include "kernels/simt/cuda_simt.h"
#else
#include "kernels/simt/emulator.h"
#endif
#include "kernels/simt/functions.h"

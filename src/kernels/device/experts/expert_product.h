// Products with the matrices of experts: a block has a tile of pairs and a share of the outputs,
// and is then what it would be in a product of so many rows with that one matrix. So their bits are
// a product's, whatever tile a pair is in.
#pragma once

#include "kernels/device/product.h"

namespace aerie::device {

struct ExpertArgs {
  ProductArgs product;
  const Matrix* experts[2];
  const ExpertTile* tiles;
  const int32_t* tile_count;
};

inline constexpr int kExpertPanels = 2;  // of a unit: of pairs of products one each

template <MatrixKind kKind, int kTiles, int kMemory>
struct ExpertShape : ProductShape<kKind, kExpertPanels, kTiles, kMemory, 0> {
  struct Shared {
    typename ProductShape<kKind, kExpertPanels, kTiles, kMemory, 0>::Shared product;
    ProductArgs args;
  };
};

// The arguments of the block's tile, by one thread.
SIMT_DEV void choose_expert(const ExpertArgs& a, const ExpertTile& tile, const int32_t* count,
                            ProductArgs& args) {
  args = a.product;
  const int64_t first = tile.first;
  for (int i = 0; i < (args.paired ? 2 : 1); ++i) {
    args.parts[i] = part_of_matrix(a.experts[i][tile.expert]);
  }
  args.rows = count;
  args.most_rows = tile.count;
  if (args.from != nullptr) {
    args.from += first;
  } else {
    args.x += first * args.x_stride;
    if (args.norm.squares != nullptr) args.norm.squares += first * args.norm.stride;
  }
  if (args.y != nullptr) args.y += first * args.y_stride;
  if (args.out != nullptr) args.out += first * args.out_stride;
}

template <MatrixKind kKind, int kTiles, int kMemory>
__global__ void __launch_bounds__(kProductThreads, (ExpertShape<kKind, kTiles, kMemory>::kBlocks))
    expert_product_kernel(const __grid_constant__ ExpertArgs a) {
  auto& shared = simt::shared<typename ExpertShape<kKind, kTiles, kMemory>::Shared>();
  simt::release_dependents();
  simt::wait_for_previous();  // which wrote the tiles
  const int index = static_cast<int>(blockIdx.y);
  if (index >= *a.tile_count) return;
  const ExpertTile& tile = a.tiles[index];
  if (threadIdx.x == 0) choose_expert(a, tile, &tile.count, shared.args);
  __syncthreads();
  run_product<kKind, kExpertPanels, kTiles, kMemory, 0>(shared.args, shared.product);
}

}  // namespace aerie::device

// Products with the matrices of experts: a block has a tile of pairs and a share of the outputs,
// and is then what it would be in a product of so many rows with that one matrix. So their bits are
// a product's, whatever tile a pair is in.
#pragma once

#include "kernels/device/product.h"

namespace aerie::device {

struct ExpertArgs {
  ProductArgs product;
  const Matrix* experts[2];
  int expert_count;
  const ExpertTile* tiles;
  const int32_t* tile_count;
  const int32_t* from;
  bool is_fixed;
};

inline constexpr int kExpertPanels = 2;  // of a unit: of pairs of products one each

// What a block multiplies: a tile's pairs with their expert's matrices. In shared memory.
class OneExpert {
 public:
  // By all threads, of which the first few have something to do.
  SIMT_DEV void choose(const ExpertArgs& a, const ExpertTile& tile) {
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < (a.product.paired ? 2 : 1)) {
      parts_[thread] = part_of_matrix(a.experts[thread][tile.expert]);
    }
    if (thread == 0) {
      first_ = tile.first;
      count_ = tile.count;
    }
    const int row = thread - 32;  // by another warp than parts
    if (row < 0 || row >= kMostExpertRows) return;
    const int pair = tile.first + (row < tile.count ? row : tile.count - 1);
    sources_[row] = a.from != nullptr ? a.from[pair] : pair;
  }

  SIMT_DEV const ProductArgs::Part& part(int index) const { return parts_[index]; }
  SIMT_DEV int most_rows() const { return count_; }
  SIMT_DEV int rows() const { return count_; }
  // Of a row that is not there the last one's.
  SIMT_DEV int source_row(int row) const { return sources_[row]; }
  SIMT_DEV int target_row(int row) const { return first_ + row; }
  template <int kTiles>
  SIMT_DEV int64_t eight_rows(const ProductArgs& args, int row) const {
    static_assert(kTiles <= 2);  // as rows of further tiles lie elsewhere
    return static_cast<int64_t>(source_row(row + 8) - source_row(row)) * args.x_stride;
  }

 private:
  ProductArgs::Part parts_[2];
  int32_t sources_[kMostExpertRows];
  int first_, count_;
};

template <MatrixKind kKind, int kTiles, int kMemory>
struct ExpertShape : ProductShape<kKind, kExpertPanels, kTiles, kMemory, 0> {
  // Of kinds with supers the loop needs more registers than half a processor's.
  static constexpr int kAtOnce =
      Unpack<kKind>::kSuperBytes > 0 ? 1 : ExpertShape::ProductShape::kBlocks;
  struct Shared {
    typename ProductShape<kKind, kExpertPanels, kTiles, kMemory, 0>::Shared product;
    OneExpert expert;
  };
};

// Which matrices there are no launch writes; which of them a block takes it learns late.
SIMT_DEV void fetch_matrices(const ExpertArgs& a) {
  const int at = static_cast<int>(threadIdx.x) * 128;
  if (at >= a.expert_count * static_cast<int>(sizeof(Matrix))) return;
  SIMT_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (i > 0 && !a.product.paired) break;
    simt::fetch_line(reinterpret_cast<const unsigned char*>(a.experts[i]) + at);
  }
}

template <MatrixKind kKind, int kTiles, int kMemory>
__global__ void __launch_bounds__(kProductThreads, (ExpertShape<kKind, kTiles, kMemory>::kAtOnce))
    expert_product_kernel(const __grid_constant__ ExpertArgs a) {
  using S = ExpertShape<kKind, kTiles, kMemory>;
  if constexpr (simt::kHasGroups || !S::kGoesOn) {
    auto& shared = simt::shared<typename S::Shared>();
    simt::release_dependents();
    fetch_matrices(a);
    if (!a.is_fixed) simt::wait_for_previous();  // which wrote the tiles
    const int index = static_cast<int>(blockIdx.y);
    const ExpertTile tile = a.tiles[index];  // of one that is not there something is read, too
    if (index >= *a.tile_count) return simt::wait_for_previous();
    shared.expert.choose(a, tile);
    __syncthreads();
    run_product<typename S::ProductShape>(a.product, shared.expert, shared.product);
  }
}

}  // namespace aerie::device

#include "kernels/device/launch_product.h"

#include "kernels/device/groups/group_few_product.h"
#include "kernels/device/groups/group_product.h"
#include "kernels/device/groups/ordered_rows.h"
#include "kernels/device/product.h"
#include "kernels/device/product_args.h"
#include "kernels/device/tile_product.h"

namespace aerie::device {
namespace {

template <MatrixKind kKind, int kPanels, int kTiles, int kMemory, int kStagedRows = 0>
cudaError_t launch_shape(ProductArgs args, const Processors& has, cudaStream_t stream) {
  using S = ProductShape<kKind, kPanels, kTiles, kMemory, kStagedRows>;
  constexpr int kBytes = sizeof(typename S::Shared), kOfBlock = 1024;  // what it takes besides
  static_assert(kBytes <= kMemory * 1024);
  // Shares are whole groups of half a unit, or of a pair.
  args.group = kPanels > 2 || (kPanels == 2 && !args.paired) ? kPanels / 2 : kPanels;
  const int groups = (args.panels + args.group - 1) / args.group;
  const int units = S::kStays ? groups : (args.panels + kPanels - 1) / kPanels;
  int each = has.all_shared_bytes / (kBytes + kOfBlock);
  each = each < 1 ? 1 : each > S::kBlocks ? S::kBlocks : each;
  const int places = has.count * each;
  const auto blocks = static_cast<unsigned>(units < places || !S::kStays ? units : places);
  args.each = groups / static_cast<int>(blocks) * args.group;
  args.more = groups % static_cast<int>(blocks);
  const auto tiles = static_cast<unsigned>((args.most_rows + S::kRows - 1) / S::kRows);
  return simt::launch(product_kernel<kKind, kPanels, kTiles, kMemory, kStagedRows>,
                      {dim3(blocks, S::kStays ? 1 : tiles), dim3(kProductThreads), kBytes, true},
                      stream, args);
}

// Of so many panels to a block, or fewer where these do not fit.
template <MatrixKind kKind, int kPanels, int kTiles>
cudaError_t launch_few(const ProductArgs& args, cudaStream_t stream) {
  using Large = ProductShape<kKind, kPanels, kTiles, kLargeMemory, 0>;
  using Small = ProductShape<kKind, kPanels, kTiles, kSmallMemory, 0>;
  constexpr int kBytes = sizeof(typename Large::Shared);
  const Processors has = processors();
  if constexpr (ProductShape<kKind, kPanels, kTiles, kGroupsMemory, 0>::kGoesOn) {
    if (has.groups) return launch_shape<kKind, kPanels, kTiles, kGroupsMemory>(args, has, stream);
  }
  if (has.shared_bytes >= kBytes) {
    return launch_shape<kKind, kPanels, kTiles, kLargeMemory>(args, has, stream);
  }
  if constexpr (kPanels == 2 && !Small::kFits) {
    return launch_few<kKind, 1, kTiles>(args, stream);
  } else if constexpr (kBytes > kSmallMemory * 1024) {
    return launch_shape<kKind, kPanels, kTiles, kSmallMemory>(args, has, stream);
  } else {
    return cudaErrorInvalidConfiguration;
  }
}

// Whether there is room for products of few rows: those of pairs have two panels to a block.
template <MatrixKind kKind>
bool fits_few(const ProductArgs& args) {
  using Large = ProductShape<kKind, 2, 2, kLargeMemory, 0>;
  using Small = ProductShape<kKind, 2, 2, kSmallMemory, 0>;
  constexpr int kBytes = sizeof(typename Large::Shared);
  return Small::kFits || !args.paired || processors().shared_bytes >= kBytes;
}

template <typename S>
bool fits(const Processors& has) {
  return has.shared_bytes >= static_cast<int>(sizeof(typename S::Shared));
}

// More panels to a block read the activations less often, and fewer keep more blocks busy: as was
// measured on an H200.
template <MatrixKind kKind>
cudaError_t launch_fewest(const ProductArgs& args, cudaStream_t stream) {
  const Processors has = processors();
  const int each = args.panels / has.count;
  if constexpr (Unpack<kKind>::kCodeBytes <= 512) {
    // With more stages the level-one cache has less room: that was slower for one row, too.
    if (each >= 4 && fits<ProductShape<kKind, 4, 1, kMediumMemory, 0>>(has)) {
      return launch_shape<kKind, 4, 1, kMediumMemory>(args, has, stream);
    }
  }
  const int least = kKind == MatrixKind::kBf16 && args.most_rows > 1 ? 2 : 4;
  if (each >= least || args.paired) return launch_few<kKind, 2, 1>(args, stream);
  if constexpr (kKind == MatrixKind::kQ4) {
    // Long segments have time for what it takes until the first activations are there.
    constexpr int kLong = 8;  // steps
    if (args.steps >= kLong * kSegments && fits<ProductShape<kKind, 1, 1, kLargeMemory, 8>>(has)) {
      return launch_shape<kKind, 1, 1, kLargeMemory, 8>(args, has, stream);
    }
  }
  return launch_few<kKind, 1, 1>(args, stream);
}

template <MatrixKind kKind, int kPanels>
cudaError_t launch_tiles(const ProductArgs& args, int rows, cudaStream_t stream) {
  using S = TileShape<kKind, kPanels>;
  const auto tiles = static_cast<unsigned>((rows + kManyRows - 1) / kManyRows);
  const auto blocks = static_cast<unsigned>((args.panels + S::kBlockPanels - 1) / S::kBlockPanels);
  return simt::launch(tile_product_kernel<kKind, kPanels>,
                      {dim3(tiles, blocks), dim3(kTileThreads), sizeof(typename S::Shared), true},
                      stream, args);
}

// Panels of a warp, for which the processors are done soonest: each takes one block after another,
// that of more panels takes longer, but not as much longer as it is larger.
template <MatrixKind kKind>
int tile_panels(const ProductArgs& args, int rows) {
  const Processors has = processors();
  const int tiles = (rows + kManyRows - 1) / kManyRows;
  int best = 1, least = 0;
  for (int panels = 1; panels <= kMostTilePanels<kKind>; ++panels) {
    if (panels > 1 && has.shared_bytes < tile_memory(panels)) break;
    const int blocks = tiles * ((args.panels + 4 * panels - 1) / (4 * panels));
    const int rounds = (blocks + has.count - 1) / has.count;
    const int time = rounds * (panels * 10 + 6);
    if (panels == 1 || time <= least) best = panels, least = time;
  }
  return best;
}

template <MatrixKind kKind>
cudaError_t order_rows(const ProductArgs& args, int rows, cudaStream_t stream) {
  const auto tiles = static_cast<unsigned>((rows + kOrderedRows - 1) / kOrderedRows);
  return simt::launch(order_rows_kernel<kKind>,
                      {dim3(tiles, static_cast<unsigned>(args.steps)), dim3(kOrderThreads),
                       sizeof(typename Ordered<kKind>::Shared), true},
                      stream, args);
}

template <MatrixKind kKind>
cudaError_t launch_groups(const ProductArgs& args, int rows, cudaStream_t stream) {
  using S = GroupShape<kKind>;
  const auto tiles = static_cast<unsigned>((rows + kManyRows - 1) / kManyRows);
  const auto blocks = static_cast<unsigned>((args.panels + S::kBlockPanels - 1) / S::kBlockPanels);
  const cudaError_t ordered = order_rows<kKind>(args, static_cast<int>(tiles) * kManyRows, stream);
  if (ordered != cudaSuccess) return ordered;
  return simt::launch(group_product_kernel<kKind>,
                      {dim3(tiles, blocks), dim3(S::kThreads), sizeof(typename S::Shared), true},
                      stream, args);
}

template <MatrixKind kKind, int kTiles>
cudaError_t launch_groups_of_few(const ProductArgs& args, cudaStream_t stream) {
  using S = GroupFewShape<kKind, kTiles>;
  static_assert(S::kDepth >= 2 && sizeof(typename S::Shared) <= kGroupMemory);
  const cudaError_t ordered = order_rows<kKind>(args, kOrderedRows, stream);
  if (ordered != cudaSuccess) return ordered;
  const auto blocks = static_cast<unsigned>((args.panels + S::kBlockPanels - 1) / S::kBlockPanels);
  return simt::launch(group_few_product_kernel<kKind, kTiles>,
                      {dim3(1, blocks), dim3(S::kThreads), sizeof(typename S::Shared), true},
                      stream, args);
}

// Larger blocks where there are enough of them: they read the activations less often.
template <MatrixKind kKind>
cudaError_t launch_groups_of_few(const ProductArgs& args, cudaStream_t stream) {
  if constexpr (kKind != MatrixKind::kBf16) {
    if (args.panels < 8 * processors().count) return launch_groups_of_few<kKind, 1>(args, stream);
  }
  return launch_groups_of_few<kKind, 2>(args, stream);
}

template <MatrixKind kKind>
cudaError_t launch_many(const ProductArgs& args, int rows, int panels, cudaStream_t stream) {
  if (panels <= 0 && args.ordered != nullptr && processors().groups)
    return launch_groups<kKind>(args, rows, stream);
  if (panels <= 0) panels = tile_panels<kKind>(args, rows);
  if constexpr (kMostTilePanels<kKind> >= 3) {
    if (panels >= 3) return launch_tiles<kKind, 3>(args, rows, stream);
  }
  if (panels >= 2) return launch_tiles<kKind, 2>(args, rows, stream);
  return launch_tiles<kKind, 1>(args, rows, stream);
}

// Whether blocks of two panels and so many rows are done in two rounds: of those of many rows there
// would be some for a small part of the processors, which would take longer than two.
constexpr int kTileRows = 32;
bool is_narrow(const ProductArgs& args, int rows) {
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  return tiles * ((args.panels + 1) / 2) <= 2 * processors().count;
}

template <MatrixKind kKind>
cudaError_t launch_kind(const ProductArgs& args, const Product& product, cudaStream_t stream) {
  const int rows = product.most_rows;
  const bool is_few = rows <= kFewRows || (product.tile_panels == 0 && is_narrow(args, rows));
  if (!is_few || !fits_few<kKind>(args)) {
    return launch_many<kKind>(args, rows, product.tile_panels, stream);
  }
  if (rows <= 8) return launch_fewest<kKind>(args, stream);
  if (rows <= 16) return launch_few<kKind, 2, 2>(args, stream);
  if constexpr (kKind != MatrixKind::kBf16x2) {
    // Where there are blocks for most processors.
    const bool enough = args.panels / 4 * 10 >= processors().count * 7;
    const bool is_group = rows > kTileRows && rows <= kOrderedRows;
    if (is_group && enough && args.ordered != nullptr && processors().groups) {
      return launch_groups_of_few<kKind>(args, stream);
    }
  }
  return launch_few<kKind, 2, kTileRows / 8>(args, stream);
}

}  // namespace

cudaError_t launch_product(const Product& product, cudaStream_t stream) {
  const ProductArgs args = args_of(product);
  switch (product.w[0].kind) {
    case MatrixKind::kBf16:
      return launch_kind<MatrixKind::kBf16>(args, product, stream);
    case MatrixKind::kBf16x2:
      return launch_kind<MatrixKind::kBf16x2>(args, product, stream);
    case MatrixKind::kQ4:
      return launch_kind<MatrixKind::kQ4>(args, product, stream);
    case MatrixKind::kQ4K:
      return launch_kind<MatrixKind::kQ4K>(args, product, stream);
    case MatrixKind::kQ8:
      return launch_kind<MatrixKind::kQ8>(args, product, stream);
    case MatrixKind::kQ6K:
      return launch_kind<MatrixKind::kQ6K>(args, product, stream);
    case MatrixKind::kFp4:
      return launch_kind<MatrixKind::kFp4>(args, product, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace aerie::device

#include "kernels/device/experts/launch_expert_product.h"

#include "kernels/device/experts/expert_product.h"
#include "kernels/device/product_args.h"

namespace aerie::device {
namespace {

template <MatrixKind kKind, int kTiles, int kMemory>
constexpr int kExpertBytes = sizeof(typename ExpertShape<kKind, kTiles, kMemory>::Shared);

template <MatrixKind kKind, int kTiles, int kMemory>
cudaError_t launch_shape(ExpertArgs args, int tiles, const Processors& has, cudaStream_t stream) {
  using S = ExpertShape<kKind, kTiles, kMemory>;
  constexpr int kBytes = kExpertBytes<kKind, kTiles, kMemory>, kOfBlock = 1024;
  static_assert(S::kStays && kBytes <= kMemory * 1024);
  ProductArgs& p = args.product;
  p.group = p.paired ? 2 : 1;
  const int groups = (p.panels + p.group - 1) / p.group;
  const int units = (p.panels + kExpertPanels - 1) / kExpertPanels;
  int each = has.all_shared_bytes / (kBytes + kOfBlock);
  each = each < 1 ? 1 : each > S::kAtOnce ? S::kAtOnce : each;
  // A row's tiles are all there: one block for each place. Of more rows' not, so that there are
  // blocks for several times the places: as was measured on an H200.
  const int rounds = tiles <= 8 ? 1 : 4;
  const int wanted = rounds * has.count * each / tiles;
  const int blocks = wanted < 1 ? 1 : units < wanted ? units : wanted;
  p.each = groups / blocks * p.group;
  p.more = groups % blocks;
  return simt::launch(expert_product_kernel<kKind, kTiles, kMemory>,
                      {dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(tiles)),
                       dim3(kProductThreads), kBytes, true},
                      stream, args);
}

template <MatrixKind kKind, int kTiles>
cudaError_t launch_tiles(const ExpertArgs& args, int tiles, cudaStream_t stream) {
  using Small = ExpertShape<kKind, kTiles, kSmallMemory>;
  const Processors has = processors();
  if constexpr (ExpertShape<kKind, kTiles, kGroupsMemory>::kGoesOn) {
    if (has.groups) return launch_shape<kKind, kTiles, kGroupsMemory>(args, tiles, has, stream);
  }
  if (has.shared_bytes >= kExpertBytes<kKind, kTiles, kLargeMemory>) {
    return launch_shape<kKind, kTiles, kLargeMemory>(args, tiles, has, stream);
  }
  if constexpr (Small::kFits) {
    return launch_shape<kKind, kTiles, kSmallMemory>(args, tiles, has, stream);
  } else {
    return cudaErrorInvalidConfiguration;  // expert_memory() is more than there is
  }
}

template <MatrixKind kKind>
struct OfKind {
  static cudaError_t launch(const ExpertProduct& p, const ExpertArgs& args, cudaStream_t stream) {
    if (p.tile_rows <= 8) return launch_tiles<kKind, 1>(args, p.most_tiles, stream);
    return launch_tiles<kKind, 2>(args, p.most_tiles, stream);
  }
  static int64_t memory() {
    if constexpr (ExpertShape<kKind, 2, kSmallMemory>::kFits &&
                  ExpertShape<kKind, 1, kSmallMemory>::kFits) {
      return kSmallMemory * 1024;
    } else {
      constexpr int64_t one = kExpertBytes<kKind, 1, kLargeMemory>;
      constexpr int64_t two = kExpertBytes<kKind, 2, kLargeMemory>;
      return one > two ? one : two;
    }
  }
};

// use(OfKind<kind>())
template <typename Use>
auto with_kind(MatrixKind kind, const Use& use) {
  switch (kind) {
    case MatrixKind::kBf16:
      return use(OfKind<MatrixKind::kBf16>());
    case MatrixKind::kBf16x2:
      return use(OfKind<MatrixKind::kBf16x2>());
    case MatrixKind::kQ4:
      return use(OfKind<MatrixKind::kQ4>());
    case MatrixKind::kQ4K:
      return use(OfKind<MatrixKind::kQ4K>());
    case MatrixKind::kQ8:
      return use(OfKind<MatrixKind::kQ8>());
    case MatrixKind::kQ6K:
      return use(OfKind<MatrixKind::kQ6K>());
    case MatrixKind::kFp4:
      break;
  }
  return use(OfKind<MatrixKind::kFp4>());
}

}  // namespace

int64_t expert_memory(MatrixKind kind) {
  return with_kind(kind, [](auto of_kind) { return of_kind.memory(); });
}

cudaError_t launch_expert_product(const ExpertProduct& p, cudaStream_t stream) {
  ExpertArgs args = {};
  args.product = args_of(p.product);
  args.from = p.from;
  args.experts[0] = p.experts[0];
  args.experts[1] = p.experts[1];
  args.expert_count = p.expert_count;
  args.tiles = p.tiles;
  args.tile_count = p.tile_count;
  args.is_fixed = p.is_fixed;
  return with_kind(p.product.w[0].kind,
                   [&](auto of_kind) { return of_kind.launch(p, args, stream); });
}

}  // namespace aerie::device

#include "kernels/device/launch_product.h"

#include <cstdlib>

#include "kernels/device/product.h"
#include "kernels/device/tile_product.h"

namespace aerie::device {
namespace {

ProductArgs args_of(const Product& p) {
  ProductArgs a = {};
  a.steps = p.w[0].steps;
  a.paired = p.output == Output::kGated;
  for (int i = 0; i < p.matrices; ++i) {
    const Matrix& m = p.w[i];
    a.parts[i] = {static_cast<const unsigned char*>(m.codes),
                  static_cast<const unsigned char*>(m.scales),
                  static_cast<const unsigned char*>(m.supers),
                  m.bias,
                  m.factor,
                  m.panels};
    a.panels += m.panels;
    a.n += m.n;
  }
  if (a.paired) a.n = p.w[0].n;
  a.rows = p.rows;
  a.most_rows = p.most_rows;
  a.x = p.x;
  a.x_stride = p.x_stride;
  a.norm = p.norm;
  a.output = p.output;
  a.y = p.y;
  a.y_stride = p.y_stride;
  a.factor = p.factor;
  a.soft_cap = p.soft_cap;
  a.next = p.next;
  a.out = p.out;
  a.out_stride = p.out_stride;
  a.glu = p.glu;
  return a;
}

int few_variant() {
  static const int variant = [] {
    const char* text = std::getenv("AERIE_FEW");
    return text != nullptr ? std::atoi(text) : 0;
  }();
  return variant;
}

// Of the current device.
struct Processors {
  int count = 1;
  int shared_bytes = 0;  // that a block may have
};
Processors processors() {
  static thread_local int known_device = -1;
  static thread_local Processors known;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return known;
  if (device != known_device) {
    cudaDeviceGetAttribute(&known.count, cudaDevAttrMultiProcessorCount, device);
    cudaDeviceGetAttribute(&known.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    known_device = device;
  }
  return known;
}

template <MatrixKind kKind, int kPanels, int kTiles>
cudaError_t launch_few(const ProductArgs& args, cudaStream_t stream) {
  using S = ProductShape<kKind, kPanels, kTiles>;
  const int units = (args.panels + kPanels - 1) / kPanels;
  const int places = processors().count * (few_variant() == 1 ? 1 : S::kBlocks);
  const auto blocks = static_cast<unsigned>(units < places || !S::kStays ? units : places);
  return simt::launch(product_kernel<kKind, kPanels, kTiles>,
                      {dim3(blocks), dim3(kProductThreads), sizeof(typename S::Shared), true},
                      stream, args);
}

// More panels to a block read the activations less often.
template <MatrixKind kKind, int kTiles>
cudaError_t launch_fewest(const ProductArgs& args, cudaStream_t stream) {
  const int few = few_variant();
  if constexpr (Unpack<kKind>::kCodeBytes <= 512) {
    if (few == 2 && args.panels >= 4 * processors().count) {
      return launch_few<kKind, 4, kTiles>(args, stream);
    }
  }
  if (few != 1 && few != 3 && args.panels < 4 * processors().count && !args.paired) {
    return launch_few<kKind, 1, kTiles>(args, stream);
  }
  return launch_few<kKind, 2, kTiles>(args, stream);
}

template <MatrixKind kKind>
cudaError_t launch_kind(const ProductArgs& args, int rows, cudaStream_t stream) {
  if (rows <= 8) return launch_fewest<kKind, 1>(args, stream);
  if (rows <= 16) return launch_fewest<kKind, 2>(args, stream);
  if (rows <= 32) return launch_few<kKind, 2, 4>(args, stream);
  if constexpr (kKind != MatrixKind::kBf16x2) {  // whose stages do not fit
    if (rows <= kFewRows) return launch_few<kKind, 2, 8>(args, stream);
  }
  using S = TileShape<kKind>;
  const auto tiles = static_cast<unsigned>((rows + kManyRows - 1) / kManyRows);
  const auto blocks = static_cast<unsigned>((args.panels + kTilePanels - 1) / kTilePanels);
  return simt::launch(tile_product_kernel<kKind>,
                      {dim3(tiles, blocks), dim3(kTileThreads), sizeof(typename S::Shared), true},
                      stream, args);
}

}  // namespace

cudaError_t launch_product(const Product& product, cudaStream_t stream) {
  const ProductArgs args = args_of(product);
  const int rows = product.most_rows;
  switch (product.w[0].kind) {
    case MatrixKind::kBf16:
      return launch_kind<MatrixKind::kBf16>(args, rows, stream);
    case MatrixKind::kBf16x2:
      return launch_kind<MatrixKind::kBf16x2>(args, rows, stream);
    case MatrixKind::kQ4:
      return launch_kind<MatrixKind::kQ4>(args, rows, stream);
    case MatrixKind::kQ4K:
      return launch_kind<MatrixKind::kQ4K>(args, rows, stream);
    case MatrixKind::kQ8:
      return launch_kind<MatrixKind::kQ8>(args, rows, stream);
    case MatrixKind::kQ6K:
      return launch_kind<MatrixKind::kQ6K>(args, rows, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace aerie::device

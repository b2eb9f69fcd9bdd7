// What a device's operations take, each by itself, over the shapes of an 8B model: microseconds and
// the share of bytes a second that copies reach. Weights are many copies, so that none comes from a
// cache.
//   device_bench [DEVICE [ROWS ...]]   cuda:0, or emulated; with rows, products of so many alone
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/open_device.h"
#include "kernels/device/pack.h"

namespace {

using namespace aerie::device;  // NOLINT(google-build-using-namespace): all of this is about it

constexpr int kMostRows = 2048;

class Bench {
 public:
  Bench(Device& device, std::vector<int> rows) : device_(device), rows_(std::move(rows)) {
    std::mt19937 random(1);
    noise_.resize(size_t{16} << 20);
    for (uint32_t& word : noise_) word = static_cast<uint32_t>(random()) & 0x3fff3fffu;
  }

  void* memory(size_t bytes, bool noise = false) {
    void* memory = device_.allocate(bytes);
    if (memory == nullptr) {
      fmt::print(stderr, "no memory for {} bytes\n", bytes);
      std::exit(1);
    }
    device_.clear(memory, bytes);
    const size_t piece = noise_.size() * sizeof(uint32_t);
    for (size_t at = 0; noise && at < bytes; at += piece) {
      device_.copy_in(static_cast<char*>(memory) + at, noise_.data(), std::min(piece, bytes - at));
    }
    device_.wait();
    return memory;
  }

  // Seconds of one call, of many in a row.
  double time(const std::function<void(int)>& call, int calls) {
    for (int i = 0; i < 3; ++i) call(i);
    device_.begin_graph();
    for (int i = 0; i < calls; ++i) call(i);
    Graph* graph = device_.end_graph();
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      device_.start_clock();
      device_.launch(graph);
      best = std::min(best, device_.stop_clock());
    }
    device_.destroy(graph);
    check();
    return best / calls;
  }

  void check() {
    if (device_.wait()) return;
    fmt::print(stderr, "{}\n", device_.error());
    std::exit(1);
  }

  double copy_rate() {
    const size_t bytes = size_t{2} << 30;
    void* from = memory(bytes);
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      device_.start_clock();
      device_.clear(from, bytes);
      best = std::min(best, device_.stop_clock());
    }
    device_.release(from);
    return static_cast<double>(bytes) / best;
  }

  // What a product has besides its weights.
  class Operands {
   public:
    Operands(Bench& bench, int n, int k)
        : device_(bench.device_),
          n_(n),
          k_(k),
          x_(bench.memory(size_t{2} * kMostRows * static_cast<size_t>(k), true)),
          y_(bench.memory(size_t{4} * kMostRows * static_cast<size_t>(n))),
          out_(bench.memory(size_t{2} * kMostRows * static_cast<size_t>(n))),
          squares_(bench.memory(size_t{4} * kMostRows * 4096)),
          norm_(bench.memory(size_t{4} * static_cast<size_t>(n), true)),
          ordered_(bench.memory(static_cast<size_t>(ordered_bytes(kMostRows, k)))),
          count_(bench.memory(64)) {}

    Product product(int rows, Output output) {
      const int32_t count = rows;
      device_.copy_in(count_, &count, sizeof count);
      device_.wait();
      Product p;
      p.rows = static_cast<int32_t*>(count_);
      p.most_rows = rows;
      p.x = static_cast<uint16_t*>(x_);
      p.x_stride = k_;
      p.ordered = ordered_;
      if (std::getenv("AERIE_TILE") != nullptr)
        p.tile_panels = std::atoi(std::getenv("AERIE_TILE"));
      p.output = output;
      p.y = static_cast<float*>(y_);
      p.y_stride = n_;
      p.out = static_cast<uint16_t*>(out_);
      p.out_stride = n_;
      auto* squares = static_cast<float*>(squares_);
      if (output == Output::kResidual) {
        p.next = {static_cast<float*>(norm_), p.out, n_, squares, n_ / kPanel};
      } else {
        p.norm = {squares, std::min(256, k_ / kPanel), k_ / kPanel, k_, 1e-5f};
      }
      return p;
    }
    void release() {
      for (void* one : {x_, y_, out_, squares_, norm_, ordered_, count_}) device_.release(one);
    }

   private:
    Device& device_;
    int n_, k_;
    void *x_, *y_, *out_, *squares_, *norm_, *ordered_, *count_;
  };

  // The matrix whose codes, scales and supers lie there; of kGated its halves.
  static void set_weights(Product& p, MatrixKind kind, int n, int k, const char* data) {
    const MatrixBytes panel = panel_bytes(kind, k);
    p.matrices = p.output == Output::kGated ? 2 : 1;
    const int64_t all = panels_of(n), panels = all / p.matrices;
    for (int i = 0; i < p.matrices; ++i) {
      p.w[i] = {kind,
                n / p.matrices,
                static_cast<int>(panels),
                static_cast<int>(steps_of(k)),
                data + i * panels * panel.codes,
                data + all * panel.codes + i * panels * panel.scales,
                data + all * (panel.codes + panel.scales) + i * panels * panel.supers,
                nullptr,
                1.0f};
    }
  }

  void products(MatrixKind kind, const char* name, int n, int k, Output output) {
    const MatrixBytes panel = panel_bytes(kind, k);
    const int64_t bytes = panels_of(n) * panel.all();
    const auto copies = static_cast<size_t>(std::max<int64_t>(1, (int64_t{400} << 20) / bytes)) + 1;
    std::vector<void*> weights;
    for (size_t i = 0; i < copies; ++i) {
      weights.push_back(memory(static_cast<size_t>(bytes), true));
    }
    Operands operands(*this, n, k);
    fmt::print("{:8} {:6} x {:6} {:8.1f} MB:", name, n, k, static_cast<double>(bytes) * 1e-6);
    for (const int rows : rows_) {
      Product p = operands.product(rows, output);
      const double seconds = time(
          [&](int i) {
            set_weights(p, kind, n, k,
                        static_cast<char*>(weights[static_cast<size_t>(i) % copies]));
            device_.product(p);
          },
          32);
      fmt::print("  {:4} {:7.1f} us {:5.2f} TB/s", rows, seconds * 1e6,
                 static_cast<double>(bytes) / seconds * 1e-12);
      if (rows > kFewRows) {
        fmt::print(" {:5.0f} TFLOP/s", 2.0 * rows * n * k / seconds * 1e-12);
      }
    }
    fmt::print("\n");
    std::fflush(stdout);
    for (void* one : weights) device_.release(one);
    operands.release();
  }

  void attention(int rows, int context) {
    const CacheShape shape = {8, 128};
    const int heads = 32;
    const int pages = context / kPage + 2;
    const size_t plane_bytes = size_t{4} * 8 * 128 * kPage * static_cast<size_t>(pages);
    const int copies = static_cast<int>((size_t{200} << 20) / plane_bytes) + 1;
    std::vector<uint16_t*> planes;
    for (int i = 0; i < copies; ++i)
      planes.push_back(static_cast<uint16_t*>(memory(plane_bytes, true)));
    std::vector<int32_t> counts(kPassCounts);
    counts[kRowCount] = rows;
    std::vector<PassRow> pass_rows;
    std::vector<PassTile> tiles;
    std::vector<int32_t> indices;
    for (int i = 0; i < pages; ++i) indices.push_back(i);
    const int of_tile = most_tile_rows(heads / shape.kv_heads);
    for (int r = 0; r < rows; ++r) {
      const int position = context + r;
      pass_rows.push_back({position, position, context, 0, 0, 1});
      if (r % of_tile == 0) tiles.push_back({r, 0, position, position});
      ++tiles.back().count;
      tiles.back().most = position;
    }
    counts[kTileCount] = static_cast<int32_t>(tiles.size());
    const auto upload = [&](const void* data, size_t bytes) {
      void* to = memory(bytes);
      device_.copy_in(to, data, bytes);
      device_.wait();
      return to;
    };
    Attend a;
    a.pass.counts = static_cast<int32_t*>(upload(counts.data(), counts.size() * 4));
    a.pass.rows =
        static_cast<PassRow*>(upload(pass_rows.data(), pass_rows.size() * sizeof(PassRow)));
    a.pass.tiles = static_cast<PassTile*>(upload(tiles.data(), tiles.size() * sizeof(PassTile)));
    a.pass.indices = static_cast<int32_t*>(upload(indices.data(), indices.size() * 4));
    a.most_rows = rows;
    a.most_tiles = static_cast<int>(tiles.size());
    a.most_chunks = (context + rows) / kChunk + 1;
    a.q = static_cast<uint16_t*>(memory(size_t{2} * static_cast<size_t>(rows) * 4096, true));
    a.heads = heads;
    a.shape = shape;
    a.scale = 0.01f;
    a.partials = static_cast<float*>(
        memory(static_cast<size_t>(partial_floats(shape, heads, rows, a.most_chunks)) * 4));
    a.arrived = static_cast<unsigned*>(
        memory(static_cast<size_t>(arrival_counters(shape, rows, a.most_chunks)) * 4));
    a.out = static_cast<uint16_t*>(memory(size_t{2} * static_cast<size_t>(rows) * 4096));
    a.out_stride = 4096;
    const double seconds = time(
        [&](int i) {
          a.plane = planes[static_cast<size_t>(i % copies)];
          device_.attend(a);
        },
        32);
    fmt::print("attention {:4} rows behind {:6}: {:7.1f} us, {:5.2f} TB/s of keys and values\n",
               rows, context, seconds * 1e6, 4096.0 * context / seconds * 1e-12);
    std::fflush(stdout);
    for (uint16_t* plane : planes) device_.release(plane);
  }

 private:
  Device& device_;
  std::vector<int> rows_;
  std::vector<uint32_t> noise_;
};

}  // namespace

int main(int argc, char** argv) {
  auto device = open(argc > 1 ? argv[1] : "cuda:0");
  if (!device.ok()) {
    fmt::print(stderr, "{}\n", device.status().message());
    return 1;
  }
  const Info info = device.value()->info();
  fmt::print("{}, {} processors, {:.1f} GiB\n", info.name, info.processors,
             static_cast<double>(info.memory) / (1 << 30));
  std::vector<int> rows;
  for (int i = 2; i < argc; ++i) rows.push_back(std::clamp(std::atoi(argv[i]), 1, kMostRows));
  const bool all = rows.empty();
  if (all) rows = {1, 8, 16, 32, 64, 512, 2048};
  Bench bench(*device.value(), rows);
  fmt::print("memory set at {:.2f} TB/s\n", bench.copy_rate() * 1e-12);
  for (const auto& [kind, name] : {std::pair{MatrixKind::kQ4, "q4"},
                                   {MatrixKind::kBf16, "bf16"},
                                   {MatrixKind::kQ4K, "q4_k"},
                                   {MatrixKind::kQ8, "q8"}}) {
    if (const char* only = std::getenv("AERIE_KINDS"); only && !std::strstr(only, name)) continue;
    bench.products(kind, name, 6144, 4096, Output::kStore);
    bench.products(kind, name, 4096, 4096, Output::kResidual);
    bench.products(kind, name, 28672, 4096, Output::kGated);
    bench.products(kind, name, 4096, 14336, Output::kResidual);
    if (kind == MatrixKind::kQ4) bench.products(kind, name, 128256, 4096, Output::kStore);
  }
  if (!all) return 0;
  for (const int count : {1, 8, 16, 64, 512}) {
    for (const int context : {128, 2048, 16384}) {
      if (count < 512 || context < 16384) bench.attention(count, context);
    }
  }
  return 0;
}

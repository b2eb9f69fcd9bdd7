// What a device's operations take, each by itself, over the shapes of an 8B model: microseconds and
// the share of bytes a second that copies reach. Weights are many copies, so that none comes from a
// cache.
//   device_bench [DEVICE [ROWS ...]]   cuda:0, or emulated; with rows, products of so many alone
//   device_bench DEVICE chain          layers one after the other, as passes of few rows have them
//   device_bench DEVICE once           each kernel of such a layer once, for a profiler
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
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

  friend class Chain;
};

// Layers of an 8B model one after the other, as a pass has them.
class Chain {
 public:
  enum Part { kQkv = 1, kPlace = 2, kAttend = 4, kO = 8, kGate = 16, kDown = 32, kAll = 63 };

  Chain(Bench& bench, MatrixKind kind, int context)
      : bench_(bench), device_(bench.device_), kind_(kind), context_(context) {
    const MatrixBytes in = panel_bytes(kind, kHidden), down = panel_bytes(kind, kFfn);
    const int64_t layer = (384 + 256 + 2 * 896) * in.all() + 256 * down.all();
    copies_ = static_cast<int>((int64_t{500} << 20) / layer) + 2;
    for (int i = 0; i < copies_; ++i) {
      Layer l;
      for (Matrix& m : l.inputs) m = matrix(&m == &l.inputs[0] ? kHidden : 1024, kHidden);
      l.o = matrix(kHidden, kHidden);
      l.gate = matrix(kFfn, kHidden);
      l.up = matrix(kFfn, kHidden);
      l.down = matrix(kHidden, kFfn);
      l.norm = floats(kHidden, true);
      l.plane = static_cast<uint16_t*>(
          get(size_t{4} * 8 * 128 * kPage * static_cast<size_t>(context / kPage + 3), true));
      layers_.push_back(l);
    }
    constexpr size_t n = kMostRows;
    stream_ = floats(n * kHidden, false);
    qkv_ = floats(n * 6144, false);
    squares_ = floats(n * 256, true);
    x_ = words(n * kHidden), q_ = words(n * kHidden), attended_ = words(n * kHidden);
    gated_ = words(n * kFfn);
    turns_ = floats(n * 128, true);
  }
  ~Chain() {
    for (void* one : all_) device_.release(one);
  }

  void set_rows(int rows) {
    rows_ = rows;
    set_pass(context_);
  }

  // Microseconds of a layer; of weights that are read again and again if `near`.
  double time(int parts, bool near = false) {
    const int layers = 32, copies = near ? 1 : copies_;
    const auto run = [&] {
      for (int i = 0; i < layers; ++i) {
        layer(layers_[static_cast<size_t>(i % copies)],
              layers_[static_cast<size_t>((i + 1) % copies)], parts);
      }
    };
    device_.begin_graph();
    run();
    Graph* graph = device_.end_graph();
    double best = 1e9;
    for (int i = 0; i < 7; ++i) {
      device_.start_clock();
      device_.launch(graph);
      best = std::min(best, device_.stop_clock());
    }
    device_.destroy(graph);
    bench_.check();
    return best / layers * 1e6;
  }

  // Each kernel once, by itself.
  void once() {
    layer(layers_[0], layers_[1], kAll);
    bench_.check();
  }

 private:
  static constexpr int kHidden = 4096, kFfn = 14336, kMostRows = 16;
  struct Layer {
    Matrix inputs[3], o, gate, up, down;
    float* norm = nullptr;
    uint16_t* plane = nullptr;
  };

  void* get(size_t bytes, bool noise) {
    all_.push_back(bench_.memory(bytes, noise));
    return all_.back();
  }
  float* floats(size_t count, bool noise) { return static_cast<float*>(get(count * 4, noise)); }
  uint16_t* words(size_t count) { return static_cast<uint16_t*>(get(count * 2, true)); }
  Matrix matrix(int n, int k) {
    const MatrixBytes panel = panel_bytes(kind_, k);
    const int64_t panels = panels_of(n);
    auto* data = static_cast<char*>(get(static_cast<size_t>(panels * panel.all()), true));
    return {kind_,
            n,
            static_cast<int>(panels),
            static_cast<int>(steps_of(k)),
            data,
            data + panels * panel.codes,
            data + panels * (panel.codes + panel.scales),
            nullptr,
            1.0f};
  }
  template <typename T>
  T* upload(const std::vector<T>& data) {
    auto* to = static_cast<T*>(get(data.size() * sizeof(T), false));
    device_.copy_in(to, data.data(), data.size() * sizeof(T));
    device_.wait();
    return to;
  }
  void set_pass(int context) {
    std::vector<int32_t> counts(kPassCounts), indices;
    counts[kRowCount] = rows_;
    std::vector<PassRow> rows;
    std::vector<PassTile> tiles;
    for (int i = 0; i < context / kPage + 3; ++i) indices.push_back(i);
    const int of_tile = most_tile_rows(4);
    for (int r = 0; r < rows_; ++r) {
      const int position = context + r;
      rows.push_back({position, position, context, 0, 0, 1});
      if (r % of_tile == 0) tiles.push_back({r, 0, position, position});
      ++tiles.back().count;
      tiles.back().most = position;
    }
    counts[kTileCount] = static_cast<int32_t>(tiles.size());
    tiles_ = static_cast<int>(tiles.size());
    chunks_ = (context + rows_) / kChunk + 1;
    pass_.counts = upload(counts);
    pass_.rows = upload(rows);
    pass_.tiles = upload(tiles);
    pass_.indices = upload(indices);
    const CacheShape shape = {8, 128};
    partials_ = floats(static_cast<size_t>(partial_floats(shape, 32, rows_, chunks_)), false);
    arrived_ = reinterpret_cast<unsigned*>(
        floats(static_cast<size_t>(arrival_counters(shape, rows_, chunks_)), false));
  }

  Product product(const uint16_t* x, int stride) {
    Product p;
    p.rows = pass_.counts + kRowCount;
    p.most_rows = rows_;
    p.x = x;
    p.x_stride = stride;
    return p;
  }
  InputNorm norm() const { return {squares_, 256, 256, kHidden, 1e-5f}; }

  void layer(const Layer& l, const Layer& next, int parts) {
    if (parts & kQkv) {
      Product p = product(x_, kHidden);
      for (int i = 0; i < 3; ++i) p.w[i] = l.inputs[i];
      p.matrices = 3;
      p.norm = norm();
      p.y = qkv_;
      p.y_stride = 6144;
      device_.product(p);
    }
    if (parts & kPlace) place(l);
    if (parts & kAttend) attend(l);
    if (parts & kO) {
      Product p = residual(l.o, attended_, kHidden, l.norm);
      device_.product(p);
    }
    if (parts & kGate) {
      Product p = product(x_, kHidden);
      p.w[0] = l.gate, p.w[1] = l.up;
      p.matrices = 2;
      p.output = Output::kGated;
      p.norm = norm();
      p.out = gated_;
      p.out_stride = kFfn;
      device_.product(p);
    }
    if (parts & kDown) {
      Product p = residual(l.down, gated_, kFfn, next.norm);
      device_.product(p);
    }
  }
  Product residual(const Matrix& m, const uint16_t* x, int stride, const float* next_norm) {
    Product p = product(x, stride);
    p.w[0] = m;
    p.output = Output::kResidual;
    p.y = stream_;
    p.y_stride = kHidden;
    p.next = {next_norm, x_, kHidden, squares_, 256};
    return p;
  }
  void place(const Layer& l) {
    Place place;
    place.pass = pass_;
    place.most_rows = rows_;
    place.qkv = qkv_;
    place.stride = 6144;
    place.heads = 32;
    place.shape = {8, 128};
    place.values_apart = 8 * 128;
    place.eps = 1e-5f;
    place.turns = turns_;
    place.turns_stride = 128;
    place.dimensions = 128;
    place.q = q_;
    place.plane = l.plane;
    device_.place(place);
  }
  void attend(const Layer& l) {
    Attend a;
    a.pass = pass_;
    a.most_rows = rows_;
    a.most_tiles = tiles_;
    a.most_chunks = chunks_;
    a.q = q_;
    a.plane = l.plane;
    a.heads = 32;
    a.shape = {8, 128};
    a.scale = 0.01f;
    a.partials = partials_;
    a.arrived = arrived_;
    a.out = attended_;
    a.out_stride = kHidden;
    device_.attend(a);
  }

  Bench& bench_;
  Device& device_;
  MatrixKind kind_;
  int context_, rows_ = 1, tiles_ = 0, chunks_ = 0, copies_ = 0;
  std::vector<Layer> layers_;
  std::vector<void*> all_;
  Pass pass_;
  float *stream_, *qkv_, *squares_, *turns_, *partials_ = nullptr;
  unsigned* arrived_ = nullptr;
  uint16_t *x_, *q_, *attended_, *gated_;
};

// Microseconds of a layer: all of it, its products, without each part, each part alone, and the
// same of weights that are near.
void chains(Bench& bench) {
  for (const auto& [kind, name] : {std::pair{MatrixKind::kQ4, "q4"}, {MatrixKind::kBf16, "bf16"}}) {
    Chain chain(bench, kind, 128);
    for (const int rows : {1, 8, 16}) {
      chain.set_rows(rows);
      const int products = Chain::kAll & ~(Chain::kPlace | Chain::kAttend);
      fmt::print(
          "{:4} {:2} rows: layer {:.1f} us, products {:.1f}; without qkv place attend o gate down:",
          name, rows, chain.time(Chain::kAll), chain.time(products));
      for (int part = 1; part < Chain::kAll; part *= 2) {
        fmt::print(" {:.1f}", chain.time(Chain::kAll & ~part));
      }
      fmt::print("; alone:");
      for (int part = 1; part < Chain::kAll; part *= 2) fmt::print(" {:.1f}", chain.time(part));
      fmt::print("; near:");
      for (int part = 1; part < Chain::kAll; part *= 2)
        fmt::print(" {:.1f}", chain.time(part, true));
      fmt::print("\n");
      std::fflush(stdout);
    }
  }
}

// Each kernel of a layer once, for a profiler.
void once(Bench& bench) {
  Chain chain(bench, MatrixKind::kQ4, 128);
  for (const int rows : {1, 8, 16}) {
    chain.set_rows(rows);
    chain.once();
  }
}

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
  const std::string mode = argc > 2 ? argv[2] : "";
  if (mode == "chain" || mode == "once") {
    Bench bench(*device.value(), {});
    if (mode == "once") {
      once(bench);
    } else {
      chains(bench);
    }
    return 0;
  }
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

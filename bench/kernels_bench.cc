// Matrix products as a forward pass has them: how fast weights stream for a few rows, how fast
// arithmetic goes for many.
//   kernels_bench [--benchmark_filter=q4_1.*avx512]
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace aerie::kernels {
namespace {

struct Setup {
  Isa isa;
  DType dtype;
  int64_t n, k, rows;
  int threads;
};

template <typename T>
T value_or_exit(Expected<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "kernels_bench: %s\n", value.status().message().c_str());
    std::exit(1);
  }
  return std::move(value).value();
}

// Any codes with ordinary scales, or floats: speed does not depend on values as long as none is
// subnormal.
std::vector<std::byte> weights_of(const Setup& s) {
  std::vector<std::byte> bytes(static_cast<size_t>(dtype_bytes(s.dtype, s.n * s.k)));
  uint32_t state = 1;
  for (std::byte& b : bytes)
    b = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  const DTypeInfo& info = dtype_info(s.dtype);
  const auto block = static_cast<size_t>(info.block_bytes);
  for (size_t at = 0; at < bytes.size(); at += block) {
    if (info.block_elements == 1) {
      bytes[at + block - 1] = std::byte{0x3C};
    } else if (s.dtype == DType::kMXFP4) {
      bytes[at] = std::byte{120};
    } else {
      // Whatever scales a block has are among the halves that it begins and ends with.
      for (const size_t half : {size_t{0}, size_t{2}, block - 4, block - 2}) {
        bytes[at + half] = std::byte{0x00};
        bytes[at + half + 1] = std::byte{0x20};
      }
    }
  }
  return bytes;
}

void matmul(benchmark::State& state, const Setup& s) {
  const Backend& on = *backend(s.isa);
  ThreadPool pool(s.threads);
  const std::vector<std::byte> bytes = weights_of(s);
  const PackedMatrix w =
      value_or_exit(on.pack(pool, {s.dtype, Device::kCpu, {s.k, s.n, 1, 1}, bytes.data()}));
  Activations x = value_or_exit(Activations::allocate(s.rows, s.k));
  x.k = s.k;
  x.rows = s.rows;
  x.has_int8 = on.wants_int8(s.dtype);
  for (int64_t i = 0; i < s.rows * s.k; ++i) x.row(0)[i] = static_cast<float>(i % 17) - 8.0f;
  on.quantize(pool, x);
  std::vector<float> y(static_cast<size_t>(s.rows * s.n));
  const MatmulTarget target = {&w, y.data(), s.n, false};
  const ThreadPool::Round round(pool);
  for (auto _ : state) {
    on.matmul(pool, x, {&target, 1});
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  const double operations = 2.0 * static_cast<double>(s.n * s.k * s.rows);
  state.counters["GB/s"] =
      Counter(1e-9 * static_cast<double>(w.data.size()), Counter::kIsIterationInvariantRate);
  state.counters["GOP/s"] = Counter(1e-9 * operations, Counter::kIsIterationInvariantRate);
}

void add_benchmarks() {
  for (const Isa isa : built_isas()) {
    if (!isa_supported(isa)) continue;
    if (isa == Isa::kReference && best_isa() != isa) continue;
    for (int type = 0; type < kDTypeCount; ++type) {
      const auto dtype = static_cast<DType>(type);
      for (const int64_t n : {1536, 49152, 98304}) {  // the last exceeds common caches
        for (const int threads : {1, 2}) {
          for (const int64_t rows : {1, 2, 4, 8, 16, 64, 512}) {
            const int64_t k = dtype_info(dtype).block_elements == 256 ? 768 : 576;
            const Setup setup = {isa, dtype, n, k, rows, threads};
            const std::string name =
                "matmul/" + std::string(dtype_info(dtype).name) + "/" + std::string(isa_name(isa)) +
                "/n:" + std::to_string(n) + "/k:" + std::to_string(k) +
                "/threads:" + std::to_string(threads) + "/rows:" + std::to_string(rows);
            benchmark::RegisterBenchmark(name.c_str(),
                                         [setup](benchmark::State& state) { matmul(state, setup); })
                ->UseRealTime()
                ->Unit(benchmark::kMicrosecond);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace aerie::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  aerie::kernels::add_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

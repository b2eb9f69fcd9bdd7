// Attention and the operations on rows, as a forward pass has them.
//   ops_bench [--benchmark_filter=attention.*avx512]
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace aerie::kernels {
namespace {

template <typename T>
T value_or_exit(Expected<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "ops_bench: %s\n", value.status().message().c_str());
    std::exit(1);
  }
  return std::move(value).value();
}

std::vector<float> some_floats(int64_t count) {
  std::vector<float> floats(static_cast<size_t>(count));
  uint32_t state = 1;
  for (float& x : floats) {
    state = state * 1664525 + 1013904223;
    x = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f;
  }
  return floats;
}

void add(const std::string& name, const std::function<void(benchmark::State&)>& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->UseRealTime()->Unit(benchmark::kMicrosecond);
}

struct AttentionSetup {
  int heads = 0, kv_heads = 0, head_dim = 0;
  int context = 0, rows = 0;
  int window = 0;
  float soft_cap = 0.0f;
  KvType type = KvType::kF16;
  int threads = 0;
};

// The planes of so many layers that none is in a processor's cache when its turn comes again.
struct Planes {
  Planes(const KvLayout& layout, int pages)
      : stride(pages * layout.page()),
        count(std::max<int64_t>(2, kBytes / stride)),
        data(value_or_exit(Buffer::allocate(static_cast<size_t>(count * stride)))) {
    // Ordinary numbers as halves, as codes and as their scales.
    const std::span<uint32_t> words = data.as<uint32_t>();
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] = 0x3C003C00 + static_cast<uint32_t>(i * 7919 % 4096);
    }
  }
  const std::byte* next() { return data.data() + (turn++ % count) * stride; }

  static constexpr int64_t kBytes = int64_t{192} << 20;
  int64_t stride, count, turn = 0;
  Buffer data;
};

// The last rows of one sequence, all committed but themselves.
void attention(benchmark::State& state, const Backend& on, const AttentionSetup& s) {
  ThreadPool pool(s.threads);
  const KvLayout layout = {s.kv_heads, s.head_dim, s.type};
  const int pages = (s.context + kPagePositions - 1) / kPagePositions;
  Planes planes(layout, pages);
  std::vector<int32_t> table(static_cast<size_t>(pages)), tail;
  for (int i = 0; i < pages; ++i) table[static_cast<size_t>(i)] = i;
  for (int p = s.context - s.rows; p < s.context; ++p) tail.push_back(p);
  std::vector<AttentionRow> rows;
  for (int p = s.context - s.rows; p < s.context; ++p) {
    rows.push_back({p, s.context - s.rows, table.data(), tail.data(), true, 0});
  }
  AttentionWorkspace workspace =
      value_or_exit(AttentionWorkspace::allocate(layout, s.heads, s.rows, s.context));
  const std::vector<float> q = some_floats(int64_t{s.rows} * s.heads * s.head_dim);
  std::vector<float> out(q.size());
  AttentionArgs args;
  args.q = q.data();
  args.out = out.data();
  args.heads = s.heads;
  args.scale = 0.1f;
  args.window = s.window;
  args.soft_cap = s.soft_cap;
  args.layout = layout;
  args.rows = rows;
  args.workspace = &workspace;
  const ThreadPool::Round round(pool);
  for (auto _ : state) {
    args.kv = planes.next();
    on.attention(pool, args);
    benchmark::ClobberMemory();
  }
}

void add_attention(const Backend& on) {
  std::vector<AttentionSetup> setups = {{4, 1, 256, 4000, 1, 0, 50.0f},
                                        {4, 1, 256, 4000, 1, 512},
                                        {4, 1, 256, 4000, 256, 512},
                                        {4, 1, 256, 4000, 256, 0, 50.0f}};
  // SmolLM2, Llama 1B and Gemma 3: decoding, verify passes, a prompt's piece.
  for (const auto& [heads, kv_heads, head_dim] : {std::array{9, 3, 64}, {32, 8, 64}, {4, 1, 256}}) {
    for (const KvType type : kAllKvTypes) {
      for (const int context : {128, 2048}) {
        for (const int rows : {1, 4, 8, 16}) {
          setups.push_back({heads, kv_heads, head_dim, context, rows, 0, 0.0f, type});
        }
      }
      setups.push_back({heads, kv_heads, head_dim, 2048, 512, 0, 0.0f, type});
    }
  }
  for (const AttentionSetup& s : setups) {
    for (const int threads : {1, 2}) {
      AttentionSetup setup = s;
      setup.threads = threads;
      const std::string name =
          "attention/" + std::string(isa_name(on.isa())) + "/" + kv_type_name(s.type) +
          "/heads:" + std::to_string(s.heads) + "x" + std::to_string(s.head_dim) +
          "/context:" + std::to_string(s.context) + "/window:" + std::to_string(s.window) +
          "/cap:" + std::to_string(static_cast<int>(s.soft_cap)) +
          "/threads:" + std::to_string(threads) + "/rows:" + std::to_string(s.rows);
      add(name, [&on, setup](benchmark::State& state) { attention(state, on, setup); });
    }
  }
}

// What an operation works on: rows of 2048 floats, as 16 heads of 128 where there are heads.
struct RowData {
  static constexpr int64_t kLength = 2048;
  static constexpr int kHeads = 16, kHeadDim = 128;
  ThreadPool pool{1};
  int64_t rows;
  std::vector<float> x, up;
  // Of weight 1 and of one angle, so that what is done in place again and again keeps its size.
  std::vector<float> weight, cos, sin;
  Activations out;

  explicit RowData(int64_t count)
      : rows(count),
        x(some_floats(count * kLength)),
        up(some_floats(count * kLength)),
        weight(static_cast<size_t>(kLength), 1.0f),
        cos(static_cast<size_t>(count * kHeadDim / 2), 0.6f),
        sin(static_cast<size_t>(count * kHeadDim / 2), 0.8f),
        out(value_or_exit(Activations::allocate(count, kLength))) {
    out.k = kLength;
    out.rows = count;
    out.has_int8 = true;
  }
};

void add_row_operations(const Backend& on) {
  using Operation = std::function<void(const Backend&, RowData&)>;
  const std::pair<const char*, Operation> operations[] = {
      {"rms_norm",
       [](const Backend& b, RowData& d) {
         b.rms_norm(d.pool, d.x.data(), d.kLength, d.weight.data(), 1e-5, d.out);
       }},
      {"layer_norm",
       [](const Backend& b, RowData& d) {
         b.layer_norm(d.pool, d.x.data(), d.kLength, d.weight.data(), d.up.data(), 1e-5, d.out);
       }},
      {"rms_norm_heads",
       [](const Backend& b, RowData& d) {
         b.rms_norm_heads(d.pool, d.x.data(), d.rows, d.kHeads, d.kHeadDim, d.weight.data(), 1e-5);
       }},
      {"gated/silu",
       [](const Backend& b, RowData& d) {
         b.gated(d.pool, Activation::kSilu, d.x.data(), d.up.data(), d.out);
       }},
      {"gated/gelu_tanh",
       [](const Backend& b, RowData& d) {
         b.gated(d.pool, Activation::kGeluTanh, d.x.data(), d.up.data(), d.out);
       }},
      {"gated/gelu",
       [](const Backend& b, RowData& d) {
         b.gated(d.pool, Activation::kGelu, d.x.data(), d.up.data(), d.out);
       }},
      {"soft_cap", [](const Backend& b,
                      RowData& d) { b.soft_cap(d.pool, d.x.data(), d.rows * d.kLength, 30.0f); }},
      {"rope/pairs",
       [](const Backend& b, RowData& d) {
         b.rope(d.pool, d.x.data(), d.rows, d.kHeads, d.kHeadDim, d.kHeadDim, RopeStyle::kPairs,
                d.cos.data(), d.sin.data());
       }},
      {"rope/halves",
       [](const Backend& b, RowData& d) {
         b.rope(d.pool, d.x.data(), d.rows, d.kHeads, d.kHeadDim, d.kHeadDim, RopeStyle::kHalves,
                d.cos.data(), d.sin.data());
       }},
  };
  for (const auto& [name, operation] : operations) {
    for (const int64_t rows : {1, 64}) {
      add(std::string(name) + "/" + std::string(isa_name(on.isa())) +
              "/rows:" + std::to_string(rows),
          [&on, rows, run = operation](benchmark::State& state) {
            RowData data(rows);
            for (auto _ : state) {
              run(on, data);
              benchmark::ClobberMemory();
            }
          });
    }
  }
}

}  // namespace
}  // namespace aerie::kernels

int main(int argc, char** argv) {
  using namespace aerie::kernels;  // NOLINT(google-build-using-namespace)
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  for (const Isa isa : built_isas()) {
    if (isa == Isa::kReference || !isa_supported(isa)) continue;
    add_attention(*backend(isa));
    add_row_operations(*backend(isa));
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}

#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <vector>

#include "kernels/reference/reference_recurrence.h"

namespace aerie::kernels {
namespace {

constexpr int64_t kTileRows = 64;
constexpr int64_t kTileK = 256;  // a whole number of blocks of every type
constexpr int64_t kSumLanes = 16;
constexpr int kKeptScores = 4096;  // of a row's attention: those after them are computed twice

// Products of one output with up to kTileRows rows: partial sums by k modulo kSumLanes, then their
// sum.
void dot_rows(const PackedMatrix& w, int64_t n, const Activations& x, int64_t first, int64_t rows,
              double* out) {
  const int64_t row_bytes = dtype_bytes(w.dtype, w.k);
  const int64_t tile_bytes = dtype_bytes(w.dtype, kTileK);
  float sums[kTileRows][kSumLanes] = {};
  float weights[kTileK];
  for (int64_t k = 0; k < w.k; k += kTileK) {
    const int64_t length = std::min(kTileK, w.k - k);
    dequantize(w.dtype, w.data.data() + n * row_bytes + k / kTileK * tile_bytes, length, weights);
    for (int64_t r = 0; r < rows; ++r) {
      const float* input = x.row(first + r) + k;
      int64_t i = 0;
      for (; i + kSumLanes <= length; i += kSumLanes) {
        for (int64_t lane = 0; lane < kSumLanes; ++lane) {
          sums[r][lane] += weights[i + lane] * input[i + lane];
        }
      }
      for (; i < length; ++i) sums[r][i % kSumLanes] += weights[i] * input[i];
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    out[r] = 0.0;
    for (int64_t lane = 0; lane < kSumLanes; ++lane) out[r] += double{sums[r][lane]};
  }
}

double inverse_rms(const float* x, int64_t k, double eps) {
  double squares = 0.0;
  for (int64_t i = 0; i < k; ++i) squares += double{x[i]} * double{x[i]};
  return 1.0 / std::sqrt(squares / static_cast<double>(k) + eps);
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGeluTanh:
      // By the logistic function, which 1 + tanh is: no cancellation below 0.
      return x / (1.0 +
                  std::exp(-2.0 * std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kClampedSilu: {
      const double y = std::min(x, 7.0);
      return y / (1.0 + std::exp(-1.702 * y));
    }
  }
  return x;
}

double activated_factor(Activation activation, double x) {
  return activation == Activation::kClampedSilu ? 1.0 + std::clamp(x, -7.0, 7.0) : x;
}

double soft_capped(double x, float cap) {
  return double{cap} * std::tanh(x / double{cap});
}

// A slot's key and value of one head.
class Entry {
 public:
  Entry(const KvLayout& layout, const std::byte* kv, int32_t slot, int head)
      : layout_(layout),
        keys_(kv + layout.keys(slot / kPagePositions, head)),
        values_(kv + layout.values(slot / kPagePositions, head)),
        offset_(slot % kPagePositions) {}

  double key(int d) const { return element(keys_, layout_.key_element(offset_, d), d); }
  double value(int d) const { return element(values_, layout_.value_element(offset_, d), d); }

 private:
  double element(const std::byte* half, int64_t i, int d) const {
    if (layout_.type == KvType::kF16) {
      return double{f16_to_f32(reinterpret_cast<const uint16_t*>(half)[i])};
    }
    return double{*reinterpret_cast<const float*>(half + layout_.scale_at(offset_, d))} *
           reinterpret_cast<const int8_t*>(half)[i];
  }

  const KvLayout& layout_;
  const std::byte* keys_;
  const std::byte* values_;
  int offset_;
};

void attend(const AttentionArgs& args, const AttentionRow& row, int head, const float* q,
            float* out) {
  const KvLayout& layout = args.layout;
  const auto entry_of = [&](int p) {
    const int32_t slot = p < row.committed
                             ? row.pages[p / kPagePositions] * kPagePositions + p % kPagePositions
                             : row.tail[p - row.committed];
    return Entry(layout, args.kv, slot, head / (args.heads / layout.kv_heads));
  };
  const auto score_of = [&](int p) {
    const Entry entry = entry_of(p);
    double sum = 0.0;
    for (int d = 0; d < layout.head_dim; ++d) sum += double{q[d]} * entry.key(d);
    const double score = sum * double{args.scale};
    return args.soft_cap != 0.0f ? soft_capped(score, args.soft_cap) : score;
  };
  const int begin = args.window > 0 ? std::max(0, row.position - args.window + 1) : 0;
  double kept[kKeptScores];
  double largest = -INFINITY;
  for (int p = begin; p <= row.position; ++p) {
    const double score = score_of(p);
    largest = std::max(largest, score);
    if (p - begin < kKeptScores) kept[p - begin] = score;
  }
  double total = 0.0;
  double sums[kMaxLongKey] = {};
  for (int p = begin; p <= row.position; ++p) {
    const double score = p - begin < kKeptScores ? kept[p - begin] : score_of(p);
    const double weight = std::exp(score - largest);
    const Entry entry = entry_of(p);
    total += weight;
    for (int d = 0; d < layout.value_dim(); ++d) sums[d] += weight * entry.value(d);
  }
  if (args.sinks != nullptr) {
    // Relative to the largest score, as the others. A sum that is no number stays none.
    total += std::exp(double{args.sinks[head]} - largest);
  }
  for (int d = 0; d < layout.value_dim(); ++d) out[d] = static_cast<float>(sums[d] / total);
}

// Dimensions [begin, end) of one head's key or value, which have a scale in common: element i to
// `half` at place(i).
template <typename Place>
void round_to(const KvLayout& layout, const float* x, int begin, int end, int offset,
              std::byte* half, const Place& place) {
  if (layout.type == KvType::kF16) {
    auto* halves = reinterpret_cast<uint16_t*>(half);
    for (int d = begin; d < end; ++d) halves[place(d)] = f32_to_f16(x[d]);
    return;
  }
  int8_t codes[kMaxLongKey];
  *reinterpret_cast<float*>(half + layout.scale_at(offset, begin)) =
      quantize_kv(x + begin, end - begin, codes);
  for (int d = begin; d < end; ++d) reinterpret_cast<int8_t*>(half)[place(d)] = codes[d - begin];
}

class ReferenceBackend final : public Backend {
 public:
  Isa isa() const override { return Isa::kReference; }
  bool wants_int8(DType) const override { return false; }

  int64_t packed_bytes(const TensorView& weights) const override { return weights.bytes(); }

  void pack(ThreadPool& pool, std::span<const TensorView> weights,
            std::span<PackedMatrix> matrices) const override {
    fill(pool, matrices, [&](size_t index, int64_t offset, std::span<std::byte> part) {
      std::memcpy(part.data(), weights[index].data + offset, part.size());
    });
  }

  void fill(ThreadPool& pool, std::span<PackedMatrix> matrices,
            const FillPart& part) const override {
    for (size_t i = 0; i < matrices.size(); ++i) {
      Buffer& data = matrices[i].data;
      pool.parallel_for(static_cast<int64_t>(data.size()), 64,
                        [&](int64_t begin, int64_t end, int) {
                          part(i, begin, {data.data() + begin, static_cast<size_t>(end - begin)});
                        });
    }
  }

  void matmul(ThreadPool& pool, const Activations& x,
              std::span<const MatmulTarget> targets) const override {
    for (const MatmulTarget& target : targets) {
      const RowGroup group = x.groups.empty() ? RowGroup{0, x.rows} : x.groups[target.group];
      pool.parallel_for(target.w->n, 16, [&](int64_t begin, int64_t end, int) {
        double sums[kTileRows];
        for (int64_t n = begin; n < end; ++n) {
          for (int64_t first = 0; first < group.rows; first += kTileRows) {
            const int64_t rows = std::min(kTileRows, group.rows - first);
            dot_rows(*target.w, n, x, group.begin + first, rows, sums);
            for (int64_t r = 0; r < rows; ++r) {
              float& y = target.y[(first + r) * target.stride + n];
              const double sum = sums[r] * double{target.w->factor} +
                                 (target.bias != nullptr ? double{target.bias[n]} : 0.0);
              y = static_cast<float>(target.accumulate ? double{y} + sum : sum);
            }
          }
        }
      });
    }
  }

  void gather(ThreadPool&, const float* x, std::span<const int32_t> from,
              Activations& out) const override {
    for (int64_t r = 0; r < out.rows; ++r) {
      std::copy_n(x + from[static_cast<size_t>(r)] * out.k, out.k, out.row(r));
    }
  }

  void add_weighted(ThreadPool&, const float* x, std::span<const int32_t> from,
                    const float* weights, int64_t rows, int64_t count, int64_t n,
                    float* y) const override {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        auto sum = double{y[r * n + i]};
        for (int64_t c = r * count; c < (r + 1) * count; ++c) {
          sum += double{weights[c]} * double{x[from[static_cast<size_t>(c)] * n + i]};
        }
        y[r * n + i] = static_cast<float>(sum);
      }
    }
  }

  void rms_norm(ThreadPool&, const float* x, int64_t x_stride, const float* weight, double eps,
                Activations& out) const override {
    for (int64_t r = 0; r < out.rows; ++r) {
      const float* in = x + r * x_stride;
      const double inverse = inverse_rms(in, out.k, eps);
      for (int64_t i = 0; i < out.k; ++i) {
        out.row(r)[i] = static_cast<float>(double{in[i]} * inverse * double{weight[i]});
      }
    }
  }

  void layer_norm(ThreadPool&, const float* x, int64_t x_stride, const float* weight,
                  const float* bias, double eps, Activations& out) const override {
    const auto k = static_cast<double>(out.k);
    for (int64_t r = 0; r < out.rows; ++r) {
      const float* in = x + r * x_stride;
      double mean = 0.0, variance = 0.0;
      for (int64_t i = 0; i < out.k; ++i) mean += double{in[i]};
      mean /= k;
      for (int64_t i = 0; i < out.k; ++i) {
        variance += (double{in[i]} - mean) * (double{in[i]} - mean);
      }
      const double inverse = 1.0 / std::sqrt(variance / k + eps);
      for (int64_t i = 0; i < out.k; ++i) {
        const double shift = bias != nullptr ? double{bias[i]} : 0.0;
        out.row(r)[i] =
            static_cast<float>((double{in[i]} - mean) * inverse * double{weight[i]} + shift);
      }
    }
  }

  void rms_norm_heads(ThreadPool&, float* x, int64_t rows, int heads, int head_dim,
                      const float* weight, double eps) const override {
    for (int64_t h = 0; h < rows * heads; ++h) {
      float* head = x + h * head_dim;
      const double inverse = inverse_rms(head, head_dim, eps);
      for (int d = 0; d < head_dim; ++d) {
        head[d] = static_cast<float>(double{head[d]} * inverse * double{weight[d]});
      }
    }
  }

  void add_rms_norm(ThreadPool&, const float* y, int64_t rows, int64_t n, const float* weight,
                    double eps, float* residual) const override {
    for (int64_t r = 0; r < rows; ++r) {
      const double inverse = inverse_rms(y + r * n, n, eps);
      for (int64_t i = r * n; i < (r + 1) * n; ++i) {
        const double normed = double{y[i]} * inverse * double{weight[i - r * n]};
        residual[i] = static_cast<float>(double{residual[i]} + normed);
      }
    }
  }

  void quantize(ThreadPool&, Activations&) const override {}

  void gated(ThreadPool&, Activation activation, const float* gate, const float* up,
             Activations& out) const override {
    for (int64_t i = 0; i < out.rows * out.k; ++i) {
      out.row(0)[i] = static_cast<float>(activated(activation, double{gate[i]}) *
                                         activated_factor(activation, double{up[i]}));
    }
  }

  void activate(ThreadPool&, Activation activation, const float* x,
                Activations& out) const override {
    for (int64_t i = 0; i < out.rows * out.k; ++i) {
      out.row(0)[i] = static_cast<float>(activated(activation, double{x[i]}));
    }
  }

  void soft_cap(ThreadPool&, float* x, int64_t count, float cap) const override {
    for (int64_t i = 0; i < count; ++i) x[i] = static_cast<float>(soft_capped(double{x[i]}, cap));
  }

  void top_k(ThreadPool& /*pool*/, const float* x, int64_t stride, int64_t rows, int64_t n, int k,
             int32_t* indices, float* values, float* log_sums) const override {
    std::vector<int32_t> order(static_cast<size_t>(n));
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x + r * stride;
      const auto value = [&](int32_t i) { return std::isnan(row[i]) ? -INFINITY : row[i]; };
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int32_t a, int32_t b) {
        return value(a) != value(b) ? value(a) > value(b) : a < b;
      });
      double sum = 0.0;
      for (int64_t i = 0; i < n; ++i) sum += std::exp(double{row[i]} - double{value(order[0])});
      for (int i = 0; i < k; ++i) {
        indices[r * k + i] = order[static_cast<size_t>(i)];
        values[r * k + i] = value(order[static_cast<size_t>(i)]);
      }
      log_sums[r] = static_cast<float>(double{value(order[0])} + std::log(sum));
    }
  }

  void rope(ThreadPool&, float* x, int64_t rows, int heads, int head_dim, int dimensions,
            RopeStyle style, const float* cos, const float* sin) const override {
    const int turns = dimensions / 2;
    for (int64_t r = 0; r < rows; ++r) {
      for (int h = 0; h < heads; ++h) {
        float* head = x + (r * heads + h) * head_dim;
        for (int i = 0; i < turns; ++i) {
          const bool pairs = style == RopeStyle::kPairs;
          float& first = head[pairs ? 2 * i : i];
          float& second = head[pairs ? 2 * i + 1 : i + turns];
          const float c = cos[r * turns + i], s = sin[r * turns + i];
          const float a = first, b = second;
          first = a * c - b * s;
          second = a * s + b * c;
        }
      }
    }
  }

  void store_kv(ThreadPool&, const KvLayout& layout, const float* k, const float* v,
                std::span<const int32_t> slots, std::byte* kv) const override {
    for (const int32_t slot : slots) {
      const int page = slot / kPagePositions, offset = slot % kPagePositions;
      for (int h = 0; h < layout.kv_heads; ++h, k += layout.head_dim) {
        const auto key = [&](int d) { return layout.key_element(offset, d); };
        const auto value = [&](int d) { return layout.value_element(offset, d); };
        std::byte* keys = kv + layout.keys(page, h);
        round_to(layout, k, layout.value_prefix, layout.head_dim, offset, keys, key);
        if (layout.value_prefix > 0) {
          round_to(layout, k, 0, layout.value_prefix, offset, keys, key);
          continue;
        }
        round_to(layout, v, 0, layout.head_dim, offset, kv + layout.values(page, h), value);
        v += layout.head_dim;
      }
    }
  }

  void attention(ThreadPool& pool, const AttentionArgs& args) const override {
    const auto rows = static_cast<int64_t>(args.rows.size());
    pool.parallel_for(rows * args.heads, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        attend(args, args.rows[static_cast<size_t>(i / args.heads)],
               static_cast<int>(i % args.heads), args.q + i * args.layout.head_dim,
               args.out + i * args.layout.value_dim());
      }
    });
  }

  void short_conv(ThreadPool& /*pool*/, const ShortConvArgs& args) const override {
    reference::short_conv(args);
  }
  void delta_rule(ThreadPool& /*pool*/, const DeltaRuleArgs& args) const override {
    reference::delta_rule(args);
  }
};

}  // namespace

std::unique_ptr<const Backend> make_reference_backend() {
  return std::make_unique<ReferenceBackend>();
}

}  // namespace aerie::kernels

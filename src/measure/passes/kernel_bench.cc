#include "measure/passes/kernel_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/errors.h"
#include "base/progress.h"
#include "base/system/topology.h"
#include "base/thread_pool.h"
#include "measure/models/random_weights.h"
#include "measure/passes/floor.h"
#include "measure/report_head.h"

namespace aerie::measure {
namespace {

using kernels::Activations;
using kernels::MatmulTarget;
using kernels::PackedMatrix;

constexpr int64_t kK = 2048;
constexpr int64_t kPanel = 16;              // outputs are a multiple of it
constexpr int64_t kCopied = 4 << 20;        // of packed weights that are made; the rest is copies
constexpr double kMeasuredSeconds = 0.010;  // at least so long for one figure
constexpr int kMostKernelRows = 512;

Status check(const KernelOptions& options) {
  const auto refuse = [](const char* flag, int64_t value, int64_t most) {
    return invalid_argument("{} {}: give 1 to {}", flag, value, most);
  };
  for (const int rows : options.rows) {
    if (rows < 1 || rows > kMostKernelRows) return refuse("--rows", rows, kMostKernelRows);
  }
  if (options.repeats < 1 || options.repeats > 10000) {
    return refuse("--repeat", options.repeats, 10000);
  }
  AERIE_RETURN_IF_ERROR(check_memory(options.memory_mib));
  if (kernels::backend(options.isa) == nullptr) {
    return not_supported("this processor does not have {}", kernels::isa_name(options.isa));
  }
  return {};
}

int64_t bytes_in_memory(const KernelOptions& options) {
  if (options.memory_mib > 0) return options.memory_mib << 20;
  const int64_t cache = std::max<int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
  return std::clamp<int64_t>(4 * cache, int64_t{128} << 20, int64_t{512} << 20);
}

int64_t bytes_in_cache(int threads) {
  const int64_t cache = std::max<int64_t>(int64_t{256} << 10, sysconf(_SC_LEVEL2_CACHE_SIZE));
  return threads * cache / 2;
}

// Matrices of one type, as many as make the bytes that are wanted, and what products of them take.
class Matrices {
 public:
  static Expected<Matrices> make(const kernels::Backend& backend, ThreadPool& pool, DType type,
                                 int64_t bytes, int most_rows);

  double product_seconds(int rows);
  double bytes() const { return bytes_; }
  double row_operations() const { return row_operations_; }

 private:
  Matrices(const kernels::Backend& backend, ThreadPool& pool) : backend_(&backend), pool_(&pool) {}
  Expected<PackedMatrix> pack(DType type, int64_t n);

  const kernels::Backend* backend_;
  ThreadPool* pool_;
  std::vector<PackedMatrix> matrices_;
  std::vector<float> outputs_;
  std::vector<MatmulTarget> targets_;
  Activations inputs_;
  double bytes_ = 0;
  double row_operations_ = 0;
};

Expected<PackedMatrix> Matrices::pack(DType type, int64_t n) {
  std::vector<std::byte> data(static_cast<size_t>(dtype_bytes(type, kK) * n));
  RandomWeights(type).fill({}, kK * n, data.data());
  return backend_->packed(*pool_, {type, Device::kCpu, {kK, n, 1, 1}, data.data()});
}

Expected<Matrices> Matrices::make(const kernels::Backend& backend, ThreadPool& pool, DType type,
                                  int64_t bytes, int most_rows) {
  Matrices made(backend, pool);
  const int64_t panel = dtype_bytes(type, kK) * kPanel;
  const int64_t n = std::max<int64_t>(1, std::min(bytes, kCopied) / panel) * kPanel;
  AERIE_ASSIGN_OR_RETURN(PackedMatrix first, made.pack(type, n));
  const auto size = static_cast<int64_t>(first.data.size());
  made.matrices_.push_back(std::move(first));
  for (int64_t i = 1; i < bytes / size; ++i) {
    PackedMatrix copy;
    copy.dtype = type;
    copy.n = n;
    copy.k = kK;
    AERIE_ASSIGN_OR_RETURN(copy.data, Buffer::allocate(static_cast<size_t>(size)));
    std::memcpy(copy.data.data(), made.matrices_.front().data.data(), static_cast<size_t>(size));
    made.matrices_.push_back(std::move(copy));
  }
  const size_t count = made.matrices_.size();
  made.bytes_ = static_cast<double>(count) * static_cast<double>(size);
  made.row_operations_ = 2.0 * static_cast<double>(count) * static_cast<double>(n * kK);
  const auto each = static_cast<size_t>(n * most_rows);
  made.outputs_.resize(count * each);
  for (size_t i = 0; i < count; ++i) {
    MatmulTarget target;
    target.w = &made.matrices_[i];
    target.y = made.outputs_.data() + i * each;
    target.stride = n;
    made.targets_.push_back(target);
  }
  AERIE_ASSIGN_OR_RETURN(made.inputs_, Activations::allocate(most_rows, kK));
  made.inputs_.k = kK;
  made.inputs_.rows = most_rows;
  made.inputs_.has_int8 = backend.wants_int8(type);
  made.inputs_.has_ordered = !made.inputs_.has_int8;
  for (int64_t i = 0; i < most_rows * kK; ++i) {
    made.inputs_.row(0)[i] = static_cast<float>(i % 17) - 8.0f;
  }
  return made;
}

double Matrices::product_seconds(int rows) {
  inputs_.rows = rows;
  backend_->quantize(*pool_, inputs_);
  const ThreadPool::Round round(*pool_);
  const auto start = steady_now();
  double seconds = 0;
  int products = 0;
  while (seconds < kMeasuredSeconds) {
    backend_->matmul(*pool_, inputs_, targets_);
    ++products;
    seconds = seconds_since(start);
  }
  return seconds / products;
}

struct KernelSeries {
  std::vector<double> gigabytes, gigaoperations, bandwidth, peak;
};

class Measurement {
 public:
  Measurement(const KernelOptions& options, ThreadPool& pool, Machine machine)
      : options_(options), pool_(pool), machine_(std::move(machine)) {
    report_.threads = pool.threads();
    report_.isa = options.isa;
  }

  Status measure(DType type, WeightsFrom from);
  KernelReport finish();

 private:
  const KernelOptions& options_;
  ThreadPool& pool_;
  Machine machine_;
  KernelReport report_;
  std::vector<Limits> limits_;
  std::vector<double> copies_;
};

Status Measurement::measure(DType type, WeightsFrom from) {
  const int64_t bytes =
      from == WeightsFrom::kMemory ? bytes_in_memory(options_) : bytes_in_cache(pool_.threads());
  const int most_rows = *std::ranges::max_element(options_.rows);
  AERIE_ASSIGN_OR_RETURN(Matrices matrices, Matrices::make(*kernels::backend(options_.isa), pool_,
                                                           type, bytes, most_rows));
  std::vector<KernelSeries> all(options_.rows.size());
  std::array<bool, kernels::kDotCount> wanted = {};
  wanted[static_cast<size_t>(kernels::Dot::kFloat)] = true;
  wanted[static_cast<size_t>(dot_of(type))] = true;
  for (const int rows : options_.rows) matrices.product_seconds(rows);  // to warm up
  for (int repeat = 0; repeat < options_.repeats; ++repeat) {
    const Limits limits = machine_.measure(wanted);
    limits_.push_back(limits);
    for (size_t i = 0; i < all.size(); ++i) {
      const double seconds = matrices.product_seconds(options_.rows[i]);
      const double operations = matrices.row_operations() * options_.rows[i] / seconds;
      all[i].gigabytes.push_back(1e-9 * matrices.bytes() / seconds);
      all[i].gigaoperations.push_back(1e-9 * operations);
      all[i].bandwidth.push_back(matrices.bytes() / seconds / limits.bandwidth);
      all[i].peak.push_back(operations / limits.dot_or_float(dot_of(type)));
    }
  }
  copies_.push_back(machine_.copy_bandwidth());
  for (size_t i = 0; i < all.size(); ++i) {
    KernelPoint point;
    point.type = type;
    point.from = from;
    point.rows = options_.rows[i];
    point.gigabytes = median(all[i].gigabytes);
    point.gigaoperations = median(all[i].gigaoperations);
    point.bandwidth_share = median(all[i].bandwidth);
    point.peak_share = median(all[i].peak);
    point.spread = spread(all[i].gigabytes);
    report_.points.push_back(point);
  }
  return {};
}

KernelReport Measurement::finish() {
  report_.limits = median_of(limits_);
  report_.copy_bandwidth = median(copies_);
  return std::move(report_);
}

const char* name_of(WeightsFrom from) {
  return from == WeightsFrom::kMemory ? "memory" : "cache";
}

}  // namespace

Expected<KernelReport> bench_kernels(const KernelOptions& options) {
  AERIE_RETURN_IF_ERROR(check(options));
  KernelOptions o = options;
  if (o.rows.empty()) o.rows = KernelOptions().rows;
  for (int i = 0; i < kDTypeCount && options.types.empty(); ++i) {
    o.types.push_back(static_cast<DType>(i));
  }
  ThreadPool pool(o.threads > 0 ? o.threads : default_threads());
  AERIE_ASSIGN_OR_RETURN(Machine machine, Machine::open(o.isa, pool, o.memory_mib));
  Measurement measurement(o, pool, std::move(machine));
  Progress progress("timing products", 2 * static_cast<int64_t>(o.types.size()));
  for (const DType type : o.types) {
    for (const WeightsFrom from : {WeightsFrom::kMemory, WeightsFrom::kCache}) {
      AERIE_RETURN_IF_ERROR(measurement.measure(type, from));
      progress.add(1);
    }
  }
  return measurement.finish();
}

std::string to_text(const KernelReport& report) {
  std::string text = head_text("", report.threads, report.isa, report.limits);
  text +=
      fmt::format("copy {:.1f} GB/s; products with rows of {}\n", 1e-9 * report.copy_bandwidth, kK);
  text += fmt::format("{:>8} {:>7} {:>5} {:>8} {:>15} {:>10} {:>9} {:>9}\n", "type", "from", "rows",
                      "GB/s", "lowest-highest", "bandwidth", "GOP/s", "peak");
  for (const KernelPoint& p : report.points) {
    text += fmt::format("{:>8} {:>7} {:>5} {:>8.2f} {:>15} {:>9.0f}% {:>9.1f} {:>8.0f}%\n",
                        dtype_info(p.type).name, name_of(p.from), p.rows, p.gigabytes,
                        fmt::format("{:.2f}-{:.2f}", p.spread.lowest, p.spread.highest),
                        100 * p.bandwidth_share, p.gigaoperations, 100 * p.peak_share);
  }
  return text;
}

std::string to_json(const KernelReport& report) {
  Json out = head_json("", report.threads, report.isa, report.limits);
  out["copy_bandwidth"] = 1e-9 * report.copy_bandwidth;
  out["points"] = Json::array();
  for (const KernelPoint& p : report.points) {
    out["points"].push_back({{"type", dtype_info(p.type).name},
                             {"from", name_of(p.from)},
                             {"rows", p.rows},
                             {"gb_per_s", p.gigabytes},
                             {"spread", spread_json(p.spread)},
                             {"gop_per_s", p.gigaoperations},
                             {"bandwidth_share", p.bandwidth_share},
                             {"peak_share", p.peak_share}});
  }
  return out.dump(2) + "\n";
}

}  // namespace aerie::measure

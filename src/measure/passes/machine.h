// The limits of the machine, measured: how fast memory can be read, how many products a second.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/thread_pool.h"
#include "kernels/machine_peak.h"
#include "tensor/tensor.h"

namespace aerie::measure {

// Bytes and operations in a second, all threads together.
struct Limits {
  std::string device = {};  // whose they are; empty: the processor's
  double bandwidth = 0;
  std::array<double, kernels::kDotCount> dots = {};  // 0: not measured, or not there

  double dot(kernels::Dot kind) const { return dots[static_cast<size_t>(kind)]; }
  // That of floats where the processor does not have the other.
  double dot_or_float(kernels::Dot kind) const {
    return dot(kind) > 0.0 ? dot(kind) : dot(kernels::Dot::kFloat);
  }
};

// Whether --memory can be so many MiB: kInvalidArgument.
Status check_memory(int64_t mib);

// Measures with the threads of a pool, which must outlive it. The fastest way to read is
// found when it is opened, of a dot product when its speed is first asked for. One thread at a
// time.
class Machine {
 public:
  // With the instructions of `isa`, or of the processor's best for the reference. Takes so many MiB
  // to read, or, if 0, several times the last cache, 256 MiB at least: kResourceExhausted. Less
  // than a cache holds measures the cache. Requires what check_memory() passes.
  static Expected<Machine> open(kernels::Isa isa, ThreadPool& pool, int64_t memory_mib = 0);

  // Each takes some hundredths of a second, a dot product's first some tenths. Speeds change from
  // one to the next: others use the machine, too.
  double read_bandwidth();  // each thread its own share of the memory
  double copy_bandwidth();  // bytes read and written
  double dot_speed(kernels::Dot dot);
  // Bandwidth, and the speeds of the dots that are asked for and there.
  Limits measure(const std::array<bool, kernels::kDotCount>& wanted);

  bool has(kernels::Dot dot) const { return kernels::has_dot(isa_, dot); }

 private:
  struct DotPlan {
    int variant = 0;
    int64_t steps = 0;  // of a piece; 0: not chosen yet
  };

  Machine(kernels::Isa isa, ThreadPool& pool) : isa_(isa), pool_(&pool) {}
  double read_seconds(int variant, int64_t begin, int64_t bytes);
  double dot_seconds(kernels::Dot dot, int variant, int64_t steps);
  double long_enough(kernels::Dot dot, int variant, int64_t& steps);
  void choose_read();
  DotPlan choose_dot(kernels::Dot dot);

  kernels::Isa isa_;
  ThreadPool* pool_;
  Buffer memory_;
  int read_variant_ = 0;
  std::array<DotPlan, kernels::kDotCount> dots_;
};

std::string utc_date();  // "2026-11-21T14:03:07Z"
// Nanoseconds for a cache line to go to another thread and back, the best of several tries. None
// if this process may use one processor only.
std::optional<double> cache_line_round_trip();

}  // namespace aerie::measure

// `aerie bench kernels`: matrix products alone, of every format and a few rows, against the
// bandwidth and the dot products that the machine has.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/backend.h"
#include "measure/passes/machine.h"
#include "measure/statistics.h"
#include "tensor/dtype.h"

namespace aerie::measure {

struct KernelOptions {
  std::vector<DType> types;  // empty: all
  std::vector<int> rows = {1, 2, 4, 8, 16};
  int threads = 0;  // 0: default_threads()
  int repeats = 7;
  // Of weights that come from memory, and of what its bandwidth is measured with; 0: several times
  // the last cache.
  int64_t memory_mib = 0;
  kernels::Isa isa = kernels::best_isa();
};

enum class WeightsFrom : uint8_t {
  kMemory,  // more of them than any cache holds
  kCache,   // each thread's fit half its own second cache
};

struct KernelPoint {
  DType type = DType::kF32;
  WeightsFrom from = WeightsFrom::kMemory;
  int rows = 0;
  double gigabytes = 0;        // a second, of packed weights; medians, as the next two
  double gigaoperations = 0;   // a second, multiplications and additions
  double bandwidth_share = 0;  // of reading memory
  double peak_share = 0;       // of the dot products that the type takes
  Spread spread;               // of gigabytes
};

struct KernelReport {
  int threads = 0;
  kernels::Isa isa = kernels::Isa::kReference;
  Limits limits;              // medians
  double copy_bandwidth = 0;  // median, bytes a second, read and written
  std::vector<KernelPoint> points;
};

// Speeds of a repetition are compared with limits measured within the same second or so.
// kInvalidArgument for counts that cannot be, kUnsupported for an Isa that is not there,
// kResourceExhausted.
Expected<KernelReport> bench_kernels(const KernelOptions& options);

std::string to_text(const KernelReport& report);
std::string to_json(const KernelReport& report);

}  // namespace aerie::measure

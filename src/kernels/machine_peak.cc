#include "kernels/machine_peak.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <iterator>

#include "kernels/cpu/isas.h"
#include "kernels/cpu/peak.h"
#include "tensor/dtype.h"

namespace aerie::kernels {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kAhead[] = {0, 1024, 4096, 16384};
static_assert(std::size(kPeakTiles) == kPeakTileCount);

// Enough for weights and for inputs, in floats.
constexpr size_t kDataFloats =
    std::max<size_t>(kLanes * kPeakMaxColumns, kPeakDepth* kPeakMaxRows) + kLanes;
struct alignas(64) DotData {
  std::array<uint8_t, kDataFloats * sizeof(float)> bytes;
  std::array<float, kDataFloats> floats;
  std::array<uint16_t, 2 * kDataFloats> bfloats;
  DotData() {
    bytes.fill(1);
    floats.fill(0x1p-10f);
    bfloats.fill(f32_to_bf16(0x1p-10f));
  }
};
const DotData& dot_data() {
  static const DotData data;
  return data;
}

// Without vectors: what the compiler makes of it.
float add_up(const std::byte* data, int64_t bytes) {
  const auto* floats = reinterpret_cast<const float*>(data);
  float sums[kLanes] = {};
  for (int64_t i = 0; i < bytes / int64_t{sizeof(float)}; ++i) sums[i % kLanes] += floats[i];
  float sum = 0;
  for (const float one : sums) sum += one;
  return sum;
}

float multiply_and_add(int64_t steps) {
  const std::array<float, kDataFloats>& data = dot_data().floats;
  float sums[kLanes] = {};
  for (int64_t step = 0; step < steps; ++step) {
    const auto at = static_cast<size_t>(step % kPeakDepth);
    for (size_t i = 0; i < kLanes; ++i) sums[i] += data[at + i] * data[at];
  }
  float sum = 0;
  for (const float one : sums) sum += one;
  return sum;
}

}  // namespace

std::string_view dot_name(Dot dot) {
  constexpr std::string_view kNames[] = {"int8", "bf16", "f32"};
  return kNames[static_cast<size_t>(dot)];
}

bool has_dot(Isa isa, Dot dot) {
  switch (dot) {
    case Dot::kInt8:
      return cpu_ops(isa) != nullptr;
    case Dot::kBfloat:
      return bfloat_dots(isa) != nullptr;
    case Dot::kFloat:
      return true;
  }
  return false;
}

int read_variants() {
  return kPeakStreamVariants * static_cast<int>(std::size(kAhead));
}

int dot_variants(Dot dot) {
  return dot == Dot::kBfloat ? 1 : kPeakTileCount;
}

float read_range(Isa isa, int variant, const std::byte* data, int64_t bytes) {
  assert(bytes % 4096 == 0);
  const CpuOps* ops = cpu_ops(isa);
  if (ops == nullptr) return add_up(data, bytes);
  float result = 0;
  PeakShare share;
  share.kind = PeakKind::kRead;
  share.variant = variant % kPeakStreamVariants;
  share.ahead = kAhead[variant / kPeakStreamVariants];
  share.data = data;
  share.bytes = bytes;
  share.result = &result;
  ops->peak(share);
  return result;
}

float run_dots(Isa isa, Dot dot, int variant, int64_t steps) {
  assert(has_dot(isa, dot));
  const CpuOps* ops = cpu_ops(isa);
  if (ops == nullptr) return multiply_and_add(steps * dot_operations(dot, variant) / (2 * kLanes));
  const DotData& data = dot_data();
  float result = 0;
  PeakShare share;
  share.variant = variant;
  share.steps = steps;
  share.result = &result;
  switch (dot) {
    case Dot::kInt8:
      share.kind = PeakKind::kInt8;
      share.data = reinterpret_cast<const std::byte*>(data.bytes.data());
      ops->peak(share);
      break;
    case Dot::kBfloat:
      share.data = reinterpret_cast<const std::byte*>(data.bfloats.data());
      bfloat_dots(isa)(share);
      break;
    case Dot::kFloat:
      share.kind = PeakKind::kFloat;
      share.data = reinterpret_cast<const std::byte*>(data.floats.data());
      ops->peak(share);
      break;
  }
  return result;
}

int64_t dot_operations(Dot dot, int variant) {
  if (dot == Dot::kBfloat) return int64_t{2} * 2 * kLanes * kBfloatSums;
  const PeakTile& tile = kPeakTiles[variant];
  const int64_t pairs = dot == Dot::kInt8 ? 4 : 1;
  return 2 * pairs * kLanes * tile.columns * tile.rows;
}

}  // namespace aerie::kernels

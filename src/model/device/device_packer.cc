#include "model/device/device_packer.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/errors.h"
#include "kernels/device/pack.h"

namespace aerie {
namespace {

using device::MatrixKind;

constexpr int64_t kMostStagingBytes = int64_t{64} << 20;
constexpr int64_t kLeastStagingBytes = int64_t{1} << 20;
constexpr int64_t kAlignment = 256;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t matrix_bytes(MatrixKind kind, int64_t k, int64_t n) {
  const device::MatrixBytes panel = device::panel_bytes(kind, k);
  const int64_t panels = device::panels_of(n);
  return aligned(panels * panel.codes) + aligned(panels * panel.scales) +
         aligned(panels * panel.supers);
}

}  // namespace

int64_t DevicePacker::packed_bytes(const TensorView& weights) const {
  return matrix_bytes(device::kind_of(weights.dtype), weights.row_length(), weights.rows());
}

Expected<kernels::PackedMatrix> DevicePacker::allocate(const TensorView& weights, Arena&) const {
  kernels::PackedMatrix matrix;
  matrix.dtype = weights.dtype;
  matrix.n = weights.rows();
  matrix.k = weights.row_length();
  AERIE_ASSIGN_OR_RETURN(matrix.data, Buffer::allocate(sizeof(device::Matrix)));
  return matrix;
}

void DevicePacker::pack(ThreadPool& pool, std::span<const TensorView> weights,
                        std::span<kernels::PackedMatrix> matrices) const {
  const bool pair = weights.size() == 2 && weights[0].rows() == weights[1].rows() &&
                    weights[0].row_length() == weights[1].row_length();
  const bool mixed = pair && device::kind_of(weights[0].dtype) != device::kind_of(weights[1].dtype);
  const auto kind_of = [&](const TensorView& view) {
    return mixed ? MatrixKind::kBf16x2 : device::kind_of(view.dtype);
  };
  // A GPU rounds up what is asked of it to as much as 2 MiB, and experts are many and small.
  int64_t bytes = 0;
  for (const TensorView& view : weights) {
    bytes += matrix_bytes(kind_of(view), view.row_length(), view.rows());
  }
  if (!status_.ok()) return;
  const Expected<void*> memory = pool_.allocate(static_cast<size_t>(bytes), "weights");
  status_ = memory.status();
  std::byte* at = memory.ok() ? static_cast<std::byte*>(*memory) : nullptr;
  for (size_t i = 0; i < weights.size() && status_.ok(); ++i) {
    const TensorView& view = weights[i];
    status_ = pack_one(pool, view, kind_of(view), at, matrices[i]);
    at += matrix_bytes(kind_of(view), view.row_length(), view.rows());
  }
}

Status DevicePacker::pack_one(ThreadPool& pool, const TensorView& weights, MatrixKind kind,
                              std::byte* codes, kernels::PackedMatrix& matrix) const {
  const int64_t k = weights.row_length(), panels = device::panels_of(weights.rows());
  const device::MatrixBytes bytes = device::panel_bytes(kind, k);
  // To get the most for a small model would take longer than to load it.
  const auto had = static_cast<int64_t>(staging_.size());
  if (had < std::min(kMostStagingBytes, panels * bytes.all())) {
    const int64_t more = std::max({kLeastStagingBytes, 2 * had, panels * bytes.all()});
    const auto size = static_cast<size_t>(std::min(kMostStagingBytes, more));
    AERIE_ASSIGN_OR_RETURN(staging_, DeviceMemory::allocate(device_, size, "loading weights",
                                                            DeviceMemory::Of::kHost));
  }
  std::byte* scales = codes + aligned(panels * bytes.codes);
  std::byte* supers = scales + aligned(panels * bytes.scales);

  if (bytes.all() > kMostStagingBytes) {
    return not_supported("a matrix of {} inputs is too large for a device", k);
  }
  const int64_t at_once = static_cast<int64_t>(staging_.size()) / bytes.all();
  auto* staging = staging_.as<std::byte>();
  for (int64_t first = 0; first < panels; first += at_once) {
    const int64_t count = std::min(at_once, panels - first);
    std::byte* staged_scales = staging + count * bytes.codes;
    std::byte* staged_supers = staged_scales + count * bytes.scales;
    pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        device::pack_panel(weights, kind, first + i, staging + i * bytes.codes,
                           staged_scales + i * bytes.scales, staged_supers + i * bytes.supers);
      }
    });
    const auto copy = [&](std::byte* to, const std::byte* from, int64_t of_panel) {
      device_.copy_in(to + first * of_panel, from, static_cast<size_t>(count * of_panel));
    };
    copy(codes, staging, bytes.codes);
    copy(scales, staged_scales, bytes.scales);
    copy(supers, staged_supers, bytes.supers);
    if (!device_.wait()) return internal_error("loading weights: {}", device_.error());
  }
  device::Matrix out;
  out.kind = kind;
  out.n = static_cast<int>(weights.rows());
  out.panels = static_cast<int>(panels);
  out.steps = static_cast<int>(device::steps_of(k));
  out.codes = codes;
  out.scales = scales;
  out.supers = supers;
  std::memcpy(matrix.data.data(), &out, sizeof out);
  return {};
}

device::Matrix device_matrix(const kernels::PackedMatrix& matrix) {
  device::Matrix out;
  std::memcpy(&out, matrix.data.data(), sizeof out);
  out.factor = matrix.factor;
  return out;
}

}  // namespace aerie

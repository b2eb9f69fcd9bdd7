// Loads matrices into a device's memory: what WeightLoader takes for a backend. It packs and does
// nothing else.
#pragma once

#include <span>

#include "base/status.h"
#include "kernels/backend_wrapper.h"
#include "kernels/device/device.h"
#include "model/device/device_memory.h"

namespace aerie {

// All must outlive it; what it packs lives as long as the pool.
class DevicePacker final : public kernels::BackendWrapper {
 public:
  DevicePacker(const kernels::Backend& host, device::Device& device, DevicePool& pool)
      : BackendWrapper(host), device_(device), pool_(pool) {}

  int64_t packed_bytes(const TensorView& weights) const override;
  bool uses_arena() const override { return false; }
  Expected<kernels::PackedMatrix> allocate(const TensorView& weights, Arena& arena) const override;
  // Two of one size that are packed together become of one kind: a gate and what it multiplies.
  void pack(ThreadPool& pool, std::span<const TensorView> weights,
            std::span<kernels::PackedMatrix> matrices) const override;

  // Of pack(), which has no other way to say it.
  const Status& status() const { return status_; }

 private:
  // To `codes` and behind, in the device's memory.
  Status pack_one(ThreadPool& pool, const TensorView& weights, device::MatrixKind kind,
                  std::byte* codes, kernels::PackedMatrix& matrix) const;

  device::Device& device_;
  DevicePool& pool_;
  mutable DeviceMemory staging_;
  mutable Status status_;
};

// Where it lies, of one that a DevicePacker packed.
device::Matrix device_matrix(const kernels::PackedMatrix& matrix);

}  // namespace aerie

#include "measure/passes/computer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"

namespace aerie::measure {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;  // many times a GPU's last cache
constexpr size_t kLeastBytes = size_t{1} << 20;
constexpr int kTries = 5;

// Memory of a device and of the host for it.
class DeviceBuffer {
 public:
  DeviceBuffer(device::Device& device, size_t bytes, bool host = false)
      : device_(device),
        host_(host),
        memory_(host ? device.allocate_host(bytes) : device.allocate(bytes)) {}
  ~DeviceBuffer() {
    if (memory_ == nullptr) return;
    host_ ? device_.release_host(memory_) : device_.release(memory_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* get() const { return memory_; }

 private:
  device::Device& device_;
  bool host_;
  void* memory_;
};

Status lost(OpenedDevice& device) {
  return internal_error("{}: {}", device.words(), device.device->error());
}

template <typename Work>
double best_seconds(device::Device& device, const Work& work) {
  double best = 0.0;
  for (int i = 0; i < kTries; ++i) {
    device.start_clock();
    work();
    const double seconds = device.stop_clock();
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

// Of buffers of so many bytes each.
Expected<double> bandwidth_with(OpenedDevice& opened, void* from, void* to, size_t bytes) {
  constexpr int kWidth = 4096;
  device::Device& device = *opened.device;
  const DeviceBuffer count(device, sizeof(int32_t)), staged(device, sizeof(int32_t), true);
  if (count.get() == nullptr || staged.get() == nullptr) return lost(opened);
  const auto rows = static_cast<int32_t>(bytes / (kWidth * sizeof(float)));
  *static_cast<int32_t*>(staged.get()) = rows;
  device.copy_in(count.get(), staged.get(), sizeof(int32_t));
  device.clear(from, bytes);
  device.clear(to, bytes);
  if (!device.wait()) return lost(opened);
  device::CopyRows copy;
  copy.rows = static_cast<const int32_t*>(count.get());
  copy.most_rows = rows;
  copy.x = static_cast<const float*>(from);
  copy.x_stride = copy.width = kWidth;
  copy.out = static_cast<float*>(to);
  copy.out_stride = kWidth;
  const double copying = best_seconds(device, [&] { device.copy_rows(copy); });
  const double clearing = best_seconds(device, [&] { device.clear(to, bytes); });
  if (!device.wait() || copying <= 0.0 || clearing <= 0.0) return lost(opened);
  const auto moved = static_cast<double>(bytes);
  return std::max(2.0 * moved / copying, moved / clearing);
}

}  // namespace

Expected<double> device_bandwidth(OpenedDevice& opened) {
  device::Device& device = *opened.device;
  const device::Info info = device.info();
  auto bytes = std::min(kMostBytes, static_cast<size_t>(std::max<int64_t>(0, info.free)) / 4);
  if (info.emulated) bytes = std::min(bytes, kLeastBytes);
  for (; bytes >= kLeastBytes; bytes /= 2) {
    const DeviceBuffer from(device, bytes), to(device, bytes);
    if (from.get() == nullptr || to.get() == nullptr) continue;
    return bandwidth_with(opened, from.get(), to.get(), bytes);
  }
  return resource_exhausted(
      "{}: there is no memory left to measure its bandwidth with: give a "
      "smaller context, or --gpu-memory",
      opened.words());
}

Expected<Computer> Computer::open(const OpenedModel& model, int64_t memory_mib) {
  Computer computer;
  computer.device_ = model.device.get();
  if (computer.device_ != nullptr && computer.device_->first_layer > 0) {
    return invalid_argument(
        "what is measured is compared with the limits of one machine, and the layers are divided "
        "between two: leave out --n-gpu-layers, or take a model that fits");
  }
  if (computer.device_ != nullptr) return computer;
  AERIE_ASSIGN_OR_RETURN(Machine machine,
                         Machine::open(model.options.isa, *model.pool, memory_mib));
  computer.machine_ = std::move(machine);
  return computer;
}

Expected<Limits> Computer::measure(const std::array<bool, kernels::kDotCount>& wanted) {
  if (machine_) return machine_->measure(wanted);
  Limits limits;
  limits.device = device_->make();
  AERIE_ASSIGN_OR_RETURN(limits.bandwidth, device_bandwidth(*device_));
  return limits;
}

}  // namespace aerie::measure

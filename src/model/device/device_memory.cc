#include "model/device/device_memory.h"

#include <algorithm>
#include <cstring>

#include "base/errors.h"

namespace aerie {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr size_t kStaged = size_t{4} << 20;  // bytes that are brought over at once

}  // namespace

Expected<DeviceMemory> DeviceMemory::allocate(device::Device& device, size_t bytes,
                                              std::string_view what, Of of) {
  DeviceMemory memory;
  memory.device_ = &device;
  memory.of_ = of;
  if (bytes == 0) return memory;
  memory.data_ = of == Of::kHost ? device.allocate_host(bytes) : device.allocate(bytes);
  if (memory.data_ == nullptr) {
    if (of == Of::kHost) {
      return resource_exhausted("{:.0f} MiB of locked memory for {}: the system does not give it",
                                static_cast<double>(bytes) / kMiB, what);
    }
    const device::Info info = device.info();
    return resource_exhausted("{}: {:.0f} MiB for {}, and {:.0f} MiB are free", info.name,
                              static_cast<double>(bytes) / kMiB, what,
                              static_cast<double>(info.free) / kMiB);
  }
  memory.bytes_ = bytes;
  if (of == Of::kHost) {
    std::memset(memory.data_, 0, bytes);
  } else {
    device.clear(memory.data_, bytes);
  }
  return memory;
}

Expected<DeviceMemory> DeviceMemory::filled(device::Device& device, size_t rows, size_t bytes,
                                            std::string_view what,
                                            const std::function<void(size_t row, void* to)>& fill) {
  AERIE_ASSIGN_OR_RETURN(DeviceMemory memory, allocate(device, rows * bytes, what));
  const size_t at_once = std::min(std::max<size_t>(kStaged / bytes, 1), rows);
  AERIE_ASSIGN_OR_RETURN(const DeviceMemory staged,
                         allocate(device, at_once * bytes, what, Of::kHost));
  for (size_t first = 0; first < rows; first += at_once) {
    const size_t count = std::min(at_once, rows - first);
    for (size_t i = 0; i < count; ++i) fill(first + i, staged.as<std::byte>() + i * bytes);
    device.copy_in(memory.as<std::byte>() + first * bytes, staged.as<void>(), count * bytes);
    if (!device.wait()) return internal_error("{}", device.error());
  }
  return memory;
}

void DeviceMemory::reset() {
  if (data_ == nullptr) return;
  if (of_ == Of::kHost) {
    device_->release_host(data_);
  } else {
    device_->release(data_);
  }
  data_ = nullptr;
}

Expected<void*> DevicePool::allocate(size_t bytes, std::string_view what) {
  AERIE_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::allocate(device_, bytes, what));
  all_.push_back(std::move(memory));
  bytes_ += static_cast<int64_t>(bytes);
  return all_.back().as<void>();
}

Expected<const void*> DevicePool::upload_bytes(std::span<const std::byte> bytes,
                                               std::string_view what) {
  if (bytes.empty()) return static_cast<const void*>(nullptr);
  AERIE_ASSIGN_OR_RETURN(void* memory, allocate(bytes.size(), what));
  device_.copy_in(memory, bytes.data(), bytes.size());
  if (!device_.wait()) return internal_error("{}", device_.error());
  return static_cast<const void*>(memory);
}

Expected<const float*> DevicePool::upload(std::span<const float> values, std::string_view what) {
  AERIE_ASSIGN_OR_RETURN(const void* memory, upload_bytes(std::as_bytes(values), what));
  return static_cast<const float*>(memory);
}

}  // namespace aerie

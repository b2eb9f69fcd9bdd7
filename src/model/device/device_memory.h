// Memory of a device that is freed with the object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kernels/device/device.h"

namespace aerie {

// The least multiple of `to` that is not below n.
template <typename T>
constexpr T rounded_up(T n, int to) {
  return (n + to - 1) / to * to;
}

// Moves, does not copy. The device must outlive it.
class DeviceMemory {
 public:
  enum class Of : uint8_t { kDevice, kHost };  // kHost: the host's, that copies go from and to

  DeviceMemory() = default;
  // Zeros. kResourceExhausted, saying what it is for, how much it is and what there is.
  static Expected<DeviceMemory> allocate(device::Device& device, size_t bytes,
                                         std::string_view what, Of of = Of::kDevice);
  // Device memory of `rows` rows of `bytes` bytes, each as fill(row, to) writes it. Waits for the
  // device.
  static Expected<DeviceMemory> filled(device::Device& device, size_t rows, size_t bytes,
                                       std::string_view what,
                                       const std::function<void(size_t row, void* to)>& fill);
  ~DeviceMemory() { reset(); }
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(of_, other.of_);
    return *this;
  }

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t size() const { return bytes_; }

 private:
  void reset();

  device::Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Of of_ = Of::kDevice;
};

// Many of them, that live as long as each other.
class DevicePool {
 public:
  explicit DevicePool(device::Device& device) : device_(device) {}

  Expected<void*> allocate(size_t bytes, std::string_view what);
  // The values in memory of the device; null for none. They are copied before it returns.
  Expected<const float*> upload(std::span<const float> values, std::string_view what);
  Expected<const void*> upload_bytes(std::span<const std::byte> bytes, std::string_view what);
  int64_t bytes() const { return bytes_; }

 private:
  device::Device& device_;
  std::vector<DeviceMemory> all_;
  int64_t bytes_ = 0;
};

}  // namespace aerie

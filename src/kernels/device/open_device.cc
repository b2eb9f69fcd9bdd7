#include "kernels/device/open_device.h"

#include <charconv>

#include "base/errors.h"
#include "kernels/device/device_impl.h"
#include "kernels/device/load_cuda.h"

namespace aerie::device {

std::optional<int> gpu_number(std::string_view name) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* const end = name.data() + name.size();
  int number = -1;
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, number);
  if (error != std::errc() || rest != end || number < 0) return std::nullopt;
  return number;
}

Expected<std::unique_ptr<Device>> open(const std::string& name) {
  if (name == "emulated") {
    char error[256] = "";
    std::unique_ptr<Device> device(make_device(0, error, sizeof error));
    if (device == nullptr) return internal_error("the emulated device: {}", error);
    return device;
  }
  if (const std::optional<int> number = gpu_number(name)) return open_cuda(*number);
  return invalid_argument("there is no device '{}': give cpu, cuda:N or emulated", name);
}

}  // namespace aerie::device

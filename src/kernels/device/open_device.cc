#include "kernels/device/open_device.h"

#include <charconv>

#include "base/errors.h"
#include "kernels/device/device_impl.h"
#include "kernels/device/load_cuda.h"

namespace aerie::device {

Expected<std::unique_ptr<Device>> open(const std::string& name) {
  if (name == "emulated") {
    char error[256] = "";
    std::unique_ptr<Device> device(make_device(0, error, sizeof error));
    if (device == nullptr) return internal_error("the emulated device: {}", error);
    return device;
  }
  if (name == "cuda") return open_cuda(0);
  constexpr std::string_view kPrefix = "cuda:";
  if (name.starts_with(kPrefix)) {
    const char* end = name.data() + name.size();
    int index = -1;
    const auto read = std::from_chars(name.data() + kPrefix.size(), end, index);
    if (read.ec == std::errc() && read.ptr == end && index >= 0) return open_cuda(index);
  }
  return invalid_argument("there is no device '{}': give cpu, cuda, cuda:N or emulated", name);
}

}  // namespace aerie::device

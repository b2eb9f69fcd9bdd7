#include "kernels/device/open_device.h"

#include "base/errors.h"

namespace aerie::device {

Expected<std::unique_ptr<Device>> open(const std::string& name) {
  return not_supported("{}: this build has no device code", name);
}

}  // namespace aerie::device

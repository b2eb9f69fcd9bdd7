#include "model/device/load_device_model.h"

#include "base/errors.h"

namespace aerie {

Status supported_by_device(const ModelFile&) {
  return not_supported("this build has no device code");
}
int64_t device_weight_bytes(const ModelFile&) {
  return 0;
}
int64_t device_working_bytes(const ModelFile&, const ModelOptions&) {
  return 0;
}
Expected<std::unique_ptr<Model>> load_device_model(const ModelFile& file, const ModelOptions&,
                                                   device::Device&) {
  return supported_by_device(file);
}

}  // namespace aerie

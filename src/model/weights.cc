#include "model/weights.h"

#include <fmt/format.h>

namespace aerie {

Expected<TensorView> WeightLoader::view(const std::string& name, int64_t k, int64_t n) {
  AERIE_ASSIGN_OR_RETURN(const TensorView tensor, file_.tensor(name));
  if (tensor.shape != Shape{k, n, 1, 1}) {
    return Status(
        StatusCode::kInvalidData,
        fmt::format("{}: tensor '{}' has shape {} where the metadata ask for {}", file_.name(),
                    name, shape_to_string(tensor.shape), shape_to_string({k, n, 1, 1})));
  }
  used_.insert(name);
  return tensor;
}

Expected<kernels::PackedMatrix> WeightLoader::matrix(const std::string& name, int64_t k,
                                                     int64_t n) {
  AERIE_ASSIGN_OR_RETURN(const TensorView tensor, view(name, k, n));
  AERIE_ASSIGN_OR_RETURN(kernels::PackedMatrix packed,
                         options_.backend->pack(*options_.pool, tensor));
  file_.release(tensor);
  packed_bytes_ += static_cast<int64_t>(packed.data.size());
  return packed;
}

Expected<std::vector<float>> WeightLoader::vector(const std::string& name, int64_t length) {
  AERIE_ASSIGN_OR_RETURN(const TensorView tensor, view(name, length, 1));
  std::vector<float> values(static_cast<size_t>(length));
  dequantize(tensor.dtype, tensor.data, length, values.data());
  return values;
}

Status WeightLoader::check_all_used(std::string_view family) const {
  for (const GgufTensor& tensor : file_.tensors()) {
    if (used_.contains(std::string(tensor.name))) continue;
    return {StatusCode::kUnsupported,
            fmt::format("{}: the tensor '{}' has no place in a model of the family '{}' as it is "
                        "supported here",
                        file_.name(), tensor.name, family)};
  }
  return {};
}

}  // namespace aerie

#include "model/weights.h"

#include <fmt/format.h>

namespace aerie {

Expected<TensorData> WeightLoader::read(const std::string& name, int64_t k, int64_t n) {
  AERIE_ASSIGN_OR_RETURN(TensorData tensor, file_.read(name));
  if (tensor.view.shape != Shape{k, n, 1, 1}) {
    return Status(StatusCode::kInvalidData,
                  fmt::format("{}: tensor '{}' has shape {} where the metadata ask for {}",
                              file_.name(), file_.origin_of(name),
                              shape_to_string(tensor.view.shape), shape_to_string({k, n, 1, 1})));
  }
  used_.insert(name);
  return tensor;
}

Expected<kernels::PackedMatrix> WeightLoader::matrix(const std::string& name, int64_t k,
                                                     int64_t n) {
  return part(name, k, n, 0, n);
}

Expected<kernels::PackedMatrix> WeightLoader::part(const std::string& name, int64_t k, int64_t n,
                                                   int64_t begin, int64_t count) {
  AERIE_ASSIGN_OR_RETURN(const TensorData tensor, read(name, k, n));
  TensorView rows = tensor.view;
  rows.data = tensor.view.row(begin);
  rows.shape[1] = count;
  AERIE_ASSIGN_OR_RETURN(kernels::PackedMatrix packed,
                         options_.backend->pack(*options_.pool, rows));
  file_.release(rows);
  packed_bytes_ += static_cast<int64_t>(packed.data.size());
  return packed;
}

Expected<std::vector<float>> WeightLoader::vector(const std::string& name, int64_t length) {
  AERIE_ASSIGN_OR_RETURN(const TensorData tensor, read(name, length, 1));
  std::vector<float> values(static_cast<size_t>(length));
  dequantize(tensor.view.dtype, tensor.view.data, length, values.data());
  return values;
}

Expected<std::vector<float>> WeightLoader::vector_if_any(const std::string& name, int64_t length) {
  return has(name) ? vector(name, length) : Expected<std::vector<float>>(std::vector<float>());
}

Status WeightLoader::check_all_used(std::string_view family) const {
  for (const TensorInfo& tensor : file_.tensors()) {
    if (used_.contains(std::string(tensor.name))) continue;
    return {StatusCode::kUnsupported,
            fmt::format("{}: the tensor '{}' has no place in a model of the family '{}' as it is "
                        "supported here",
                        file_.name(), file_.origin_of(tensor.name), family)};
  }
  return {};
}

}  // namespace aerie

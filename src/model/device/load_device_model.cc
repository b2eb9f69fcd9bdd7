#include "model/device/load_device_model.h"

#include "kernels/device/pack.h"
#include "model/device/device_transformer.h"
#include "model/device/device_weights.h"
#include "model/device/divided_model.h"
#include "model/import/predictor_file.h"
#include "model/registry.h"
#include "model/transformer.h"
#include "model/transformer_weights.h"

namespace aerie {

Status supported_by_device(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(const Blueprint blueprint, read_blueprint(file));
  return check_device_code(blueprint);
}

int64_t device_weight_bytes(const ModelFile& file, const LayerRange& layers) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (!tensor.dtype || is_of_predictor(file, tensor.name)) continue;
    if (!is_of_layers(tensor.name, layers)) continue;
    const TensorView view = {*tensor.dtype, Device::kCpu, tensor.shape, nullptr};
    const bool is_table = tensor.name == "token_embd.weight";
    if (is_table && file.find_tensor("output.weight") != nullptr) continue;  // stays with the host
    if (view.rows() == 1) {                                                  // a vector, as floats
      bytes += view.elements() * static_cast<int64_t>(sizeof(float));
      continue;
    }
    const device::MatrixBytes panel =
        device::panel_bytes(device::kind_of(view.dtype), view.row_length());
    bytes += device::panels_of(view.rows()) * panel.all();
  }
  return bytes;
}

int64_t device_working_bytes(const ModelFile& file, const ModelOptions& options) {
  const Expected<Blueprint> blueprint = read_blueprint(file);
  return blueprint.ok() ? device_working_bytes(blueprint.value(), options) : 0;
}

Expected<std::unique_ptr<Model>> load_device_model(const ModelFile& file,
                                                   const ModelOptions& options,
                                                   device::Device& device, int first_layer) {
  AERIE_ASSIGN_OR_RETURN(Blueprint blueprint, read_blueprint(file));
  if (first_layer == 0) {
    return load_device_transformer(file, std::move(blueprint), options, device);
  }
  AERIE_RETURN_IF_ERROR(check_device_code(blueprint));
  AERIE_ASSIGN_OR_RETURN(
      std::unique_ptr<Model> front,
      load_transformer(file, blueprint, DividedModel::of_front(options, first_layer)));
  ModelOptions behind = options;
  behind.layers.first = first_layer;
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Model> back,
                         load_device_transformer(file, std::move(blueprint), behind, device));
  return std::unique_ptr<Model>(
      std::make_unique<DividedModel>(std::move(front), std::move(back), first_layer));
}

}  // namespace aerie

#include "model/device/load_device_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "base/errors.h"
#include "kernels/device/pack.h"
#include "model/device/device_transformer.h"
#include "model/device/device_weights.h"
#include "model/device/divided_model.h"
#include "model/import/predictor_file.h"
#include "model/registry.h"
#include "model/transformer.h"
#include "model/transformer_weights.h"

namespace aerie {

namespace {

// The kinds that a layer's matrices would have, by what the tensors are called in the layer: of
// experts that have a tensor each the first one's.
using LayerKinds = std::map<std::string_view, device::MatrixKind>;

// kUnsupported if tensors of one role are of several types.
Status add_kind(const TensorInfo& tensor, std::string_view role, LayerKinds& kinds) {
  const device::MatrixKind kind = device::kind_of(*tensor.dtype);
  if (kinds.emplace(role, kind).first->second == kind) return {};
  return not_supported("there is no device code for experts of several types in a layer ({})",
                       tensor.name);
}

Status check_kinds(int layer, const LayerKinds& kinds, int64_t shared_bytes) {
  for (const std::string_view suffix : {"", "_exps", "_shexp"}) {
    const auto gate = kinds.find("ffn_gate" + std::string(suffix));
    const auto up = kinds.find("ffn_up" + std::string(suffix));
    if (gate == kinds.end() || up == kinds.end() || gate->second == up->second) continue;
    return not_supported(
        "there is no device code for experts whose gates are of another type than what they "
        "multiply (layer {})",
        layer);
  }
  for (const auto& [role, kind] : kinds) {
    if (role.ends_with("_shexp") || device::expert_memory(kind) <= shared_bytes) continue;
    return not_supported(
        "experts of this type need {} KiB of shared memory in a block, and the device gives {} "
        "(layer {}, {})",
        device::expert_memory(kind) >> 10, shared_bytes >> 10, layer, role);
  }
  return {};
}

// What devices take of the types of experts: products of them are of one type each, of a gate's and
// of what it multiplies. `shared_bytes`: that a block may have.
Status check_expert_types(const ModelFile& file, const Blueprint& blueprint, int64_t shared_bytes) {
  constexpr std::string_view kLayer = "blk.", kFfn = "ffn_", kWeight = ".weight";
  for (int i = 0; has_experts(blueprint) && i < blueprint.config.layers; ++i) {
    if (!blueprint.layers[static_cast<size_t>(i)].experts) continue;
    const std::string prefix = std::string(kLayer) + std::to_string(i) + ".";
    LayerKinds kinds;
    for (const TensorInfo& tensor : file.tensors()) {
      std::string_view name = tensor.name;
      if (!name.starts_with(prefix) || !name.ends_with(kWeight) || !tensor.dtype) continue;
      name.remove_prefix(prefix.size());
      if (!name.starts_with(kFfn) || name.starts_with("ffn_gate_inp")) continue;
      name = name.substr(0, name.find('.'));
      // A feed-forward beside them is none of theirs.
      if (blueprint.experts_beside && !name.ends_with("_exps")) continue;
      if (name.ends_with("norm")) continue;
      AERIE_RETURN_IF_ERROR(add_kind(tensor, name, kinds));
    }
    AERIE_RETURN_IF_ERROR(check_kinds(i, kinds, shared_bytes));
  }
  return {};
}

// Matrices of heads are products of experts, too. Older files have one for keys and values
// together, of which the part of keys is turned when it is read.
constexpr std::string_view kJoined = ".attn_kv_b.weight";
constexpr device::MatrixKind kTurnedKind = device::MatrixKind::kBf16x2;

Status check_latent_types(const ModelFile& file, int64_t shared_bytes) {
  for (const TensorInfo& tensor : file.tensors()) {
    const std::string_view name = tensor.name;
    const bool is_joined = name.ends_with(kJoined);
    if (!is_joined && !name.ends_with(".attn_k_b.weight") && !name.ends_with(".attn_v_b.weight")) {
      continue;
    }
    if (!tensor.dtype) continue;
    int64_t needed = device::expert_memory(device::kind_of(*tensor.dtype));
    if (is_joined) needed = std::max(needed, device::expert_memory(kTurnedKind));
    if (needed <= shared_bytes) continue;
    return not_supported(
        "matrices of heads of this type need {} KiB of shared memory in a block, and the device "
        "gives {} ({})",
        needed >> 10, shared_bytes >> 10, name);
  }
  return {};
}

// What the part of keys takes besides, of a tensor of both: 0 of any other.
int64_t turned_bytes(const TensorInfo& tensor, const ModelConfig& config) {
  const LatentAttention& latent = config.latent;
  if (latent.rank == 0 || !tensor.name.ends_with(kJoined)) return 0;
  const device::MatrixBytes panel = device::panel_bytes(kTurnedKind, latent.plain);
  return config.heads * device::panels_of(latent.rank) * panel.all();
}

// kUnsupported where a layer on the device reads keys and values of one that is not there.
Status check_division(const ModelConfig& config, int first_layer) {
  if (config.divides_at(first_layer)) return {};
  int first = first_layer;
  while (first > 0 && !config.divides_at(first)) --first;
  const std::string instead = first > 0
                                  ? fmt::format("give it {} layers or more, by --n-gpu-layers {}",
                                                config.layers - first, config.layers - first)
                                  : "give it all layers, or none";
  return not_supported(
      "layers from {} on read keys and values of layers before, which a device needs beside them: "
      "{}",
      first_layer, instead);
}

}  // namespace

Status supported_by_device(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(const Blueprint blueprint, read_blueprint(file));
  AERIE_RETURN_IF_ERROR(check_device_code(blueprint));
  return check_expert_types(file, blueprint, std::numeric_limits<int64_t>::max());
}

Status check_device_types(const ModelFile& file, const Blueprint& blueprint,
                          device::Device& device) {
  const int64_t shared_bytes = device.info().shared_bytes;
  AERIE_RETURN_IF_ERROR(check_expert_types(file, blueprint, shared_bytes));
  return check_latent_types(file, shared_bytes);
}

int64_t device_weight_bytes(const ModelFile& file, const LayerRange& layers) {
  int64_t bytes = 0;
  const Expected<ModelConfig> config = read_model_config(file);
  for (const TensorInfo& tensor : file.tensors()) {
    if (!tensor.dtype || is_of_predictor(file, tensor.name)) continue;
    if (!is_of_layers(tensor.name, layers)) continue;
    const TensorView view = {*tensor.dtype, Device::kCpu, tensor.shape, nullptr};
    // What is looked up stays with the host.
    if (tensor.name == "per_layer_token_embd.weight" || tensor.name == "position_embd.weight") {
      continue;
    }
    const bool is_table = tensor.name == "token_embd.weight";
    if (is_table && file.find_tensor("output.weight") != nullptr) continue;  // stays with the host
    // A vector, or one for each channel, as floats.
    if (view.rows() == 1 || view.row_length() < device::kPanel) {
      bytes += view.elements() * static_cast<int64_t>(sizeof(float));
      continue;
    }
    const device::MatrixBytes panel =
        device::panel_bytes(device::kind_of(view.dtype), view.row_length());
    bytes += device::panels_of(view.rows()) * panel.all();
    if (config.ok()) bytes += turned_bytes(tensor, *config);
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
  AERIE_RETURN_IF_ERROR(check_device_types(file, blueprint, device));
  if (first_layer == 0) {
    return load_device_transformer(file, std::move(blueprint), options, device);
  }
  AERIE_RETURN_IF_ERROR(check_device_code(blueprint));
  AERIE_RETURN_IF_ERROR(check_division(blueprint.config, first_layer));
  AERIE_ASSIGN_OR_RETURN(
      std::unique_ptr<Model> front,
      load_transformer(file, blueprint, DividedModel::of_front(options, first_layer)));
  ModelOptions behind = options;
  behind.layers.first = first_layer;
  AERIE_ASSIGN_OR_RETURN(std::unique_ptr<Model> back,
                         load_device_transformer(file, std::move(blueprint), behind, device));
  return std::unique_ptr<Model>(
      std::make_unique<DividedModel>(std::move(front), std::move(back), first_layer, options));
}

}  // namespace aerie

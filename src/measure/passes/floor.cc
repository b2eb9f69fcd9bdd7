#include "measure/passes/floor.h"

#include <algorithm>
#include <cmath>

#include "kv/kv_cache.h"
#include "model/import/layer_names.h"
#include "model/registry.h"

namespace aerie::measure {
namespace {

using kernels::Dot;

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kOutput = "output.weight";
constexpr std::string_view kPositions = "position_embd.weight";
constexpr std::string_view kPerLayer = "per_layer_token_embd.weight";

// Of a layer; where layers differ, on average.
int64_t bytes_of_position(const Blueprint& blueprint, kernels::KvType type) {
  ModelConfig one = blueprint.config;
  one.layers = 1;
  one.linear_layers.clear();
  one.windows.clear();
  int64_t bytes = 0;
  for (const LayerPlan& layer : blueprint.layers) {
    if (layer.kv_heads > 0) one.kv_heads = layer.kv_heads;
    if (layer.head_dim > 0) one.head_dim = layer.head_dim;
    bytes += KvCache::bytes_needed(one, kernels::kPagePositions, type) / kernels::kPagePositions;
  }
  return bytes / std::ssize(blueprint.layers);
}

int average_head_dim(const Blueprint& blueprint) {
  int64_t sum = 0;
  for (const LayerPlan& layer : blueprint.layers) {
    sum += layer.head_dim > 0 ? layer.head_dim : blueprint.config.head_dim;
  }
  return static_cast<int>(sum / std::ssize(blueprint.layers));
}

}  // namespace

Dot dot_of(DType type) {
  if (dtype_info(type).block_elements > 1) return Dot::kInt8;
  return type == DType::kF32 ? Dot::kFloat : Dot::kBfloat;
}

Expected<PassWork> work_of(const ModelFile& file, kernels::KvType cache_type) {
  AERIE_ASSIGN_OR_RETURN(const Blueprint blueprint, read_blueprint(file));
  const ModelConfig& config = blueprint.config;
  PassWork work;
  const bool tied = file.find_tensor(kOutput) == nullptr;
  for (const TensorInfo& tensor : file.tensors()) {
    if ((tensor.name == kEmbedding && !tied) || tensor.name == kPositions ||
        tensor.name == kPerLayer) {
      continue;
    }
    // Of draft heads.
    if (split_layer(tensor.name).layer >= config.layers) continue;
    // A stack of matrices, of which a row uses some.
    const bool stacked = (tensor.shape[2] > 1 && tensor.shape[2] == config.experts &&
                          tensor.name.find("_exps") != std::string_view::npos) ||
                         split_expert(tensor.name).expert >= 0;
    if (stacked) {
      work.expert_bytes += static_cast<double>(tensor.bytes) / static_cast<double>(config.experts);
    } else {
      work.weight_bytes += tensor.bytes;
    }
    const int64_t rows = tensor.elements() / tensor.shape[0];
    if (!tensor.dtype || rows == 1) continue;
    if (tensor.name == (tied ? kEmbedding : kOutput)) {
      work.head_operations = 2.0 * static_cast<double>(tensor.elements());
    }
    work.row_operations[static_cast<size_t>(dot_of(*tensor.dtype))] +=
        2.0 * static_cast<double>(tensor.elements()) *
        (stacked ? static_cast<double>(config.used_experts) / config.experts : 1.0);
  }
  work.experts = config.experts;
  work.used_experts = config.used_experts;
  work.expert_layers =
      static_cast<int>(std::ranges::count(blueprint.layers, true, &LayerPlan::experts));
  if (work.expert_layers > 0) work.expert_bytes /= work.expert_layers;
  work.position_bytes = bytes_of_position(blueprint, cache_type);
  for (int i = 0; i < config.layers; ++i) {
    if (config.is_linear(i)) continue;
    work.windows.push_back(blueprint.layers[static_cast<size_t>(i)].window);
  }
  const kernels::StateLayout state = state_layout(config);
  work.state_bytes = 2 * config.count_linear() * state.state() * int64_t{sizeof(float)};
  // Looked up for a key, where that is subtracted, and for a query, and added to.
  const double passes = config.linear.kind == LinearKind::kDeltaRule ? 3.0 : 2.0;
  work.state_operations =
      config.count_linear() * passes * 2.0 * static_cast<double>(state.heads * state.matrix());
  // Latents are multiplied as floats.
  const bool bytes = cache_type == kernels::KvType::kQ8 && config.latent.rank == 0;
  const int keys = average_head_dim(blueprint);
  const int values = config.latent.rank > 0 ? config.latent.rank : keys;
  work.attention_operations = 2.0 * config.heads * (keys + values);
  work.position_operations = (bytes ? 2.0 : 1.0) * work.attention_operations;
  work.attention_dot = bytes ? Dot::kInt8 : Dot::kFloat;
  return work;
}

int64_t PassWork::positions(int context) const {
  int64_t positions = 0;
  for (const int window : windows) positions += window > 0 ? std::min(window, context) : context;
  return positions;
}

double PassWork::expected_experts(int rows) const {
  if (experts == 0) return 0.0;
  const double left_out = 1.0 - static_cast<double>(used_experts) / experts;
  return expert_layers * experts * (1.0 - std::pow(left_out, rows));
}

double PassWork::bytes(int context, double read_experts) const {
  return static_cast<double>(weight_bytes + cache_bytes(context) + state_bytes) +
         read_experts * expert_bytes;
}

double prompt_operations(const PassWork& work, int tokens) {
  double operations = work.state_operations - work.head_operations;
  for (const double of_row : work.row_operations) operations += of_row;
  double positions = 0;
  for (int context = 1; context <= tokens; ++context) {
    positions += static_cast<double>(work.positions(context));
  }
  return operations * tokens + work.attention_operations * positions;
}

double floor_seconds(const PassWork& work, int context, int rows, const Limits& limits) {
  return floor_seconds(work, context, rows, work.expected_experts(rows), limits);
}

double floor_seconds(const PassWork& work, int context, int rows, double experts,
                     const Limits& limits) {
  const double bytes = work.bytes(context, experts);
  const double attention =
      work.position_operations * static_cast<double>(work.positions(context)) * rows;
  double products = 0;
  if (attention > 0.0) products = attention / limits.dot_or_float(work.attention_dot);
  products += work.state_operations * rows / limits.dot_or_float(Dot::kFloat);
  for (int d = 0; d < kernels::kDotCount; ++d) {
    const double operations = work.row_operations[static_cast<size_t>(d)] * rows;
    if (operations == 0.0) continue;
    products += operations / limits.dot_or_float(static_cast<Dot>(d));
  }
  return std::max(bytes / limits.bandwidth, products);
}

}  // namespace aerie::measure

#include "measure/passes/floor.h"

#include <algorithm>

#include "kv/kv_cache.h"
#include "model/registry.h"

namespace aerie::measure {
namespace {

using kernels::Dot;

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kPositions = "position_embd.weight";

Expected<Blueprint> read_blueprint(const ModelFile& file) {
  AERIE_ASSIGN_OR_RETURN(const std::string_view name, file.string("general.architecture"));
  for (const ModelFamily* family : model_families()) {
    if (family->architecture == name) return family->read(file);
  }
  return read_model_config(file).status();  // says which there are
}

}  // namespace

Dot dot_of(DType type) {
  if (dtype_info(type).block_elements > 1) return Dot::kInt8;
  return type == DType::kF32 ? Dot::kFloat : Dot::kBfloat;
}

Expected<PassWork> work_of(const ModelFile& file, kernels::KvType cache_type) {
  AERIE_ASSIGN_OR_RETURN(const Blueprint blueprint, read_blueprint(file));
  PassWork work;
  const bool tied = file.find_tensor("output.weight") == nullptr;
  for (const TensorInfo& tensor : file.tensors()) {
    if ((tensor.name == kEmbedding && !tied) || tensor.name == kPositions) continue;
    work.weight_bytes += tensor.bytes;
    const int64_t rows = tensor.elements() / tensor.shape[0];
    if (!tensor.dtype || rows == 1) continue;
    work.row_operations[static_cast<size_t>(dot_of(*tensor.dtype))] +=
        2.0 * static_cast<double>(tensor.elements());
  }
  ModelConfig layer = blueprint.config;
  layer.layers = 1;
  work.position_bytes =
      KvCache::bytes_needed(layer, kernels::kPagePositions, cache_type) / kernels::kPagePositions;
  for (const LayerPlan& plan : blueprint.layers) work.windows.push_back(plan.window);
  const bool bytes = cache_type == kernels::KvType::kQ8;
  work.position_operations = (bytes ? 2.0 : 1.0) * 4.0 * blueprint.config.q_width();
  work.attention_dot = bytes ? Dot::kInt8 : Dot::kFloat;
  return work;
}

int64_t PassWork::positions(int context) const {
  int64_t positions = 0;
  for (const int window : windows) positions += window > 0 ? std::min(window, context) : context;
  return positions;
}

double floor_seconds(const PassWork& work, int context, int rows, const Limits& limits) {
  const double bytes = static_cast<double>(work.weight_bytes + work.cache_bytes(context));
  const double attention =
      work.position_operations * static_cast<double>(work.positions(context)) * rows;
  double products = 0;
  if (attention > 0.0) products = attention / limits.dot_or_float(work.attention_dot);
  for (int d = 0; d < kernels::kDotCount; ++d) {
    const double operations = work.row_operations[static_cast<size_t>(d)] * rows;
    if (operations == 0.0) continue;
    products += operations / limits.dot_or_float(static_cast<Dot>(d));
  }
  return std::max(bytes / limits.bandwidth, products);
}

}  // namespace aerie::measure

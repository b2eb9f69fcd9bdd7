#include "model/inputs/per_layer_inputs.h"

#include <algorithm>
#include <cmath>

namespace aerie {

using kernels::Activations;
using kernels::MatmulTarget;

PerLayerInputs::PerLayerInputs(const Blueprint& blueprint, const ModelOptions& options)
    : hidden_(blueprint.config.hidden),
      width_(blueprint.per_layer_width),
      layers_(blueprint.config.layers),
      norm_eps_(blueprint.norm_eps),
      activation_(blueprint.activation),
      backend_(options.backend),
      pool_(options.pool) {}

Expected<std::unique_ptr<PerLayerInputs>> PerLayerInputs::create(const Blueprint& blueprint,
                                                                 const ModelOptions& options) {
  if (blueprint.per_layer_width == 0) return std::unique_ptr<PerLayerInputs>();
  std::unique_ptr<PerLayerInputs> made(new PerLayerInputs(blueprint, options));
  const auto rows = static_cast<size_t>(options.max_rows);
  const auto width = static_cast<size_t>(made->width_), layers = static_cast<size_t>(made->layers_);
  made->inputs_.resize(rows * layers * width);
  made->token_.resize(layers * width);
  made->of_layer_.resize(rows * width);
  made->gate_.resize(rows * width);
  made->branch_.resize(rows * static_cast<size_t>(made->hidden_));
  AERIE_ASSIGN_OR_RETURN(made->input_, Activations::allocate(options.max_rows, made->hidden_));
  AERIE_ASSIGN_OR_RETURN(made->gated_, Activations::allocate(options.max_rows, made->width_));
  return made;
}

void PerLayerInputs::start(const TransformerWeights& weights, const ForwardBatch& batch,
                           const float* embedded) {
  rows_ = batch.size();
  const size_t all = token_.size();
  prepare_activations(*backend_, rows_, hidden_, {&weights.per_layer_project}, input_);
  for (int64_t r = 0; r < rows_; ++r) {
    std::copy_n(embedded + r * hidden_, hidden_, input_.row(r));
  }
  backend_->quantize(*pool_, input_);
  const MatmulTarget project[] = {weights.per_layer_project.to(inputs_.data())};
  backend_->matmul(*pool_, input_, project);
  const float share = 1.0f / std::sqrt(static_cast<float>(hidden_));
  const size_t end = static_cast<size_t>(rows_) * all;
  for (size_t i = 0; i < end; ++i) inputs_[i] *= share;
  backend_->rms_norm_heads(*pool_, inputs_.data(), rows_, layers_, width_,
                           weights.per_layer_norm.data(), norm_eps_);

  const TensorView& table = weights.per_layer_embedding.view;
  const float scale = std::sqrt(static_cast<float>(width_)), half = std::sqrt(0.5f);
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    dequantize(table.dtype, table.row(batch.rows[r].token), static_cast<int64_t>(all),
               token_.data());
    float* out = inputs_.data() + r * all;
    for (size_t i = 0; i < all; ++i) out[i] = (out[i] + token_[i] * scale) * half;
  }
}

void PerLayerInputs::add(const PerLayerWeights& layer, int index, float* stream) {
  prepare_activations(*backend_, rows_, hidden_, {&layer.gate}, input_);
  const auto stride = static_cast<int64_t>(token_.size());
  for (int64_t r = 0; r < rows_; ++r) {
    std::copy_n(stream + r * hidden_, hidden_, input_.row(r));
    std::copy_n(inputs_.data() + r * stride + int64_t{index} * width_, width_,
                of_layer_.data() + r * width_);
  }
  backend_->quantize(*pool_, input_);
  const MatmulTarget gate[] = {layer.gate.to(gate_.data())};
  backend_->matmul(*pool_, input_, gate);
  prepare_activations(*backend_, rows_, width_, {&layer.out}, gated_);
  backend_->gated(*pool_, activation_, gate_.data(), of_layer_.data(), gated_);
  const MatmulTarget out[] = {layer.out.to(branch_.data())};
  backend_->matmul(*pool_, gated_, out);
  backend_->add_rms_norm(*pool_, branch_.data(), rows_, hidden_, layer.post_norm.weight.data(),
                         norm_eps_, stream);
}

}  // namespace aerie

#include "model/attention/latent_runner.h"

#include <algorithm>

namespace aerie {

using kernels::Activations;
using kernels::MatmulTarget;

LatentRunner::LatentRunner(const Blueprint& blueprint, const ModelOptions& options)
    : config_(blueprint.config),
      shape_(blueprint.config.latent),
      norm_eps_(blueprint.norm_eps),
      rope_style_(blueprint.rope_style),
      backend_(options.backend),
      pool_(options.pool) {}

Expected<std::unique_ptr<LatentRunner>> LatentRunner::create(const Blueprint& blueprint,
                                                             const ModelOptions& options) {
  if (blueprint.config.latent.rank == 0) return std::unique_ptr<LatentRunner>();
  std::unique_ptr<LatentRunner> runner(new LatentRunner(blueprint, options));
  AERIE_RETURN_IF_ERROR(runner->allocate(options.max_rows));
  return runner;
}

Status LatentRunner::allocate(int max_rows) {
  const auto rows = static_cast<size_t>(max_rows), heads = static_cast<size_t>(config_.heads);
  const auto width = [&](int dimensions) { return rows * static_cast<size_t>(dimensions); };
  query_latent_.resize(width(shape_.query_rank));
  queries_.resize(heads * width(shape_.query_dim()));
  latent_.resize(width(config_.head_dim));
  attended_.resize(heads * width(shape_.rank));
  query_turns_.resize(heads * width(shape_.rope));
  key_turns_.resize(width(shape_.rope));
  by_head_.reserve(heads * rows);
  groups_.reserve(heads);
  products_.reserve(heads);
  const auto all = static_cast<int64_t>(heads * rows);
  if (shape_.query_rank > 0) {
    AERIE_ASSIGN_OR_RETURN(query_input_, Activations::allocate(max_rows, shape_.query_rank));
  }
  AERIE_ASSIGN_OR_RETURN(normed_, Activations::allocate(max_rows, shape_.rank));
  AERIE_ASSIGN_OR_RETURN(plain_, Activations::allocate(all, shape_.plain));
  AERIE_ASSIGN_OR_RETURN(weighted_, Activations::allocate(all, shape_.rank));
  return {};
}

// Products of each head's matrix with its group of rows; those of head h go to y + h * step, rows
// `stride` apart.
void LatentRunner::multiply(const std::vector<Linear>& matrices, const Activations& x, float* y,
                            int64_t stride, int64_t step) {
  products_.clear();
  for (size_t h = 0; h < matrices.size(); ++h) {
    MatmulTarget product = matrices[h].to(y + static_cast<int64_t>(h) * step);
    product.stride = stride;
    product.group = h;
    products_.push_back(product);
  }
  backend_->matmul(*pool_, x, products_);
}

void LatentRunner::turn(std::vector<float>& x, int heads, Turns turns) const {
  backend_->rope(*pool_, x.data(), rows_, heads, shape_.rope, shape_.rope, rope_style_, turns.cos,
                 turns.sin);
}

// Queries as heads have them, [rows][heads][plain + rope]; and latent_.
const std::vector<float>& LatentRunner::heads_queries(const TransformerLayer& layer,
                                                      const Activations& x) {
  const MatmulTarget keys = layer.k.to(latent_.data());
  if (shape_.query_rank == 0) {
    const MatmulTarget projections[] = {layer.q.to(queries_.data()), keys};
    backend_->matmul(*pool_, x, projections);
    return queries_;
  }
  const MatmulTarget projections[] = {layer.latent.query_latent.to(query_latent_.data()), keys};
  backend_->matmul(*pool_, x, projections);
  prepare_activations(*backend_, rows_, shape_.query_rank, {&layer.q}, query_input_);
  backend_->rms_norm(*pool_, query_latent_.data(), shape_.query_rank,
                     layer.latent.query_norm.data(), norm_eps_, query_input_);
  const MatmulTarget expansion[] = {layer.q.to(queries_.data())};
  backend_->matmul(*pool_, query_input_, expansion);
  return queries_;
}

void LatentRunner::make_keys(const TransformerLayer& layer, Turns turns, float* keys) {
  const int64_t rank = shape_.rank, width = config_.head_dim;
  prepare_activations(*backend_, rows_, rank, {}, normed_);
  backend_->rms_norm(*pool_, latent_.data(), width, layer.latent.norm.data(), norm_eps_, normed_);
  for (int64_t r = 0; r < rows_; ++r) {
    std::copy_n(latent_.data() + r * width + rank, shape_.rope,
                key_turns_.data() + r * shape_.rope);
  }
  turn(key_turns_, 1, turns);
  for (int64_t r = 0; r < rows_; ++r) {
    std::copy_n(normed_.row(r), rank, keys + r * width);
    std::copy_n(key_turns_.data() + r * shape_.rope, shape_.rope, keys + r * width + rank);
  }
}

void LatentRunner::group_by_head() {
  groups_.clear();
  by_head_.clear();
  for (int32_t h = 0; h < config_.heads; ++h) {
    groups_.push_back({h * rows_, rows_});
    for (int64_t r = 0; r < rows_; ++r) {
      by_head_.push_back(static_cast<int32_t>(r) * config_.heads + h);
    }
  }
}

void LatentRunner::project(const TransformerLayer& layer, const Activations& x, Turns turns,
                           float* queries, float* keys) {
  rows_ = x.rows;
  const std::vector<float>& all = heads_queries(layer, x);
  make_keys(layer, turns, keys);
  group_by_head();
  const int64_t heads = config_.heads, pairs = heads * rows_;
  prepare_activations(*backend_, pairs, shape_.plain, {&layer.latent.to_keys.front()}, plain_);
  plain_.groups = groups_;
  for (int64_t i = 0; i < pairs; ++i) {
    const float* query = all.data() + i * shape_.query_dim();
    std::copy_n(query, shape_.plain, plain_.row(i % heads * rows_ + i / heads));
    std::copy_n(query + shape_.plain, shape_.rope, query_turns_.data() + i * shape_.rope);
  }
  backend_->quantize(*pool_, plain_);
  multiply(layer.latent.to_keys, plain_, queries, config_.q_width(), config_.head_dim);
  turn(query_turns_, config_.heads, turns);
  for (int64_t i = 0; i < pairs; ++i) {
    std::copy_n(query_turns_.data() + i * shape_.rope, shape_.rope,
                queries + i * config_.head_dim + shape_.rank);
  }
}

void LatentRunner::finish(const TransformerLayer& layer, Activations& out) {
  prepare_activations(*backend_, config_.heads * rows_, shape_.rank,
                      {&layer.latent.to_values.front()}, weighted_);
  weighted_.groups = groups_;
  backend_->gather(*pool_, attended_.data(), by_head_, weighted_);
  multiply(layer.latent.to_values, weighted_, out.row(0), config_.attended_width(),
           shape_.value_dim);
}

}  // namespace aerie

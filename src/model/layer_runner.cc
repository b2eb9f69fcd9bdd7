#include "model/layer_runner.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

namespace aerie {

using kernels::Activations;
using kernels::MatmulTarget;

LayerRunner::LayerRunner(const Blueprint& blueprint, const ModelOptions& options)
    : blueprint_(blueprint),
      backend_(options.backend),
      pool_(options.pool),
      paths_(options.max_rows) {
  for (const RopeConfig& rope : blueprint.ropes) ropes_.emplace_back(rope, options.max_positions);
}

Expected<LayerRunner> LayerRunner::create(const Blueprint& blueprint, const ModelOptions& options,
                                          int64_t widest_input) {
  LayerRunner runner(blueprint, options);
  AERIE_RETURN_IF_ERROR(
      runner.allocate(options, std::max<int64_t>(widest_input, blueprint.config.hidden)));
  return runner;
}

Status LayerRunner::allocate(const ModelOptions& options, int64_t widest_input) {
  const ModelConfig& config = blueprint_.config;
  const int max_rows = options.max_rows;
  const auto rows = static_cast<size_t>(max_rows);
  x_.resize(rows * static_cast<size_t>(config.hidden));
  if (blueprint_.post_norms || blueprint_.residual_scale != 1.0) branch_.resize(x_.size());
  q_.resize(rows * static_cast<size_t>(config.q_width()));
  if (blueprint_.attention_gate) gated_queries_.resize(2 * q_.size());
  k_.resize(rows * static_cast<size_t>(config.kv_width()));
  v_.resize(k_.size());
  up_.resize(rows * static_cast<size_t>(config.ffn));
  if (blueprint_.gated) gate_.resize(up_.size());
  for (Rope& rope : ropes_) {
    rope.cos.resize(rows * static_cast<size_t>(rope.table.pairs()));
    rope.sin.resize(rope.cos.size());
  }
  slots_.reserve(rows);
  AERIE_ASSIGN_OR_RETURN(experts_, ExpertRunner::create(blueprint_, options));
  AERIE_ASSIGN_OR_RETURN(linear_, LinearRunner::create(blueprint_, options));
  AERIE_ASSIGN_OR_RETURN(latent_, LatentRunner::create(blueprint_, options));
  if (config.count_windows() > 0) {
    windows_ = std::make_unique<WindowRows>(max_rows, options.max_positions);
  }
  AERIE_ASSIGN_OR_RETURN(input_, Activations::allocate(max_rows, widest_input));
  AERIE_ASSIGN_OR_RETURN(attended_, Activations::allocate(max_rows, config.attended_width()));
  AERIE_ASSIGN_OR_RETURN(gated_, Activations::allocate(max_rows, config.ffn));
  if (blueprint_.value_norm) ones_.assign(static_cast<size_t>(config.head_dim), 1.0f);
  if (blueprint_.experts_beside && experts_) {
    of_experts_.resize(x_.size());
    AERIE_ASSIGN_OR_RETURN(router_input_, Activations::allocate(max_rows, config.hidden));
  }
  const kernels::KvLayout layout = {config.kv_heads, config.head_dim, kernels::KvType::kF16,
                                    config.latent.rank};
  AERIE_ASSIGN_OR_RETURN(attention_, kernels::AttentionWorkspace::allocate(
                                         layout, config.heads, max_rows, options.max_positions));
  return {};
}

void LayerRunner::start(const ForwardBatch& batch) {
  rows_ = batch.size();
  slots_.clear();
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const BatchRow& row = batch.rows[r];
    for (Rope& rope : ropes_) {
      const auto at = r * static_cast<size_t>(rope.table.pairs());
      rope.table.fill(row.position, rope.cos.data() + at, rope.sin.data() + at);
    }
    slots_.push_back(row.slot);
  }
  batch_ = &batch;
  attention_rows_ = paths_.build(batch);
  if (std::ranges::any_of(blueprint_.layers, &LayerPlan::sees_chain)) {
    chain_rows_ = paths_.whole_chains(batch);
  }
  if (windows_) windows_->start();
  if (linear_) linear_->start(batch);
}

void LayerRunner::prepare(Activations& out, int64_t rows, int64_t k,
                          std::initializer_list<const Linear*> readers) const {
  prepare_activations(*backend_, rows, k, readers, out);
}

void LayerRunner::normalize(const Norm& norm, const float* x, int64_t x_stride,
                            Activations& out) const {
  if (blueprint_.norm == NormKind::kLayer) {
    backend_->layer_norm(*pool_, x, x_stride, norm.weight.data(), norm.bias.data(),
                         blueprint_.norm_eps, out);
  } else {
    backend_->rms_norm(*pool_, x, x_stride, norm.weight.data(), blueprint_.norm_eps, out);
  }
}

void LayerRunner::turn(const Rope& rope, std::vector<float>& x, int heads, int head_dim) const {
  backend_->rope(*pool_, x.data(), rows_, heads, head_dim, rope.dimensions, blueprint_.rope_style,
                 rope.cos.data(), rope.sin.data());
}

// The residual stream += norm(linear x), or linear x where there is no norm after it, or a multiple
// of that.
void LayerRunner::add_to_stream(const Linear& linear, const Activations& x, const Norm& post_norm) {
  const bool scaled = blueprint_.residual_scale != 1.0;
  assert(!scaled || !blueprint_.post_norms);
  if (!blueprint_.post_norms && !scaled) {
    const MatmulTarget output[] = {linear.to(x_.data(), true)};
    backend_->matmul(*pool_, x, output);
    return;
  }
  const MatmulTarget output[] = {linear.to(branch_.data())};
  backend_->matmul(*pool_, x, output);
  if (scaled) {
    const auto scale = static_cast<float>(blueprint_.residual_scale);
    const size_t end = static_cast<size_t>(rows_) * static_cast<size_t>(blueprint_.config.hidden);
    for (size_t i = 0; i < end; ++i) x_[i] += scale * branch_[i];
    return;
  }
  backend_->add_rms_norm(*pool_, branch_.data(), rows_, blueprint_.config.hidden,
                         post_norm.weight.data(), blueprint_.norm_eps, x_.data());
}

void LayerRunner::split_queries() {
  const auto width = static_cast<size_t>(blueprint_.config.head_dim);
  const size_t heads = static_cast<size_t>(rows_) * static_cast<size_t>(blueprint_.config.heads);
  for (size_t h = 0; h < heads; ++h) {
    std::copy_n(gated_queries_.data() + 2 * h * width, width, q_.data() + h * width);
  }
}

void LayerRunner::gate_attended() {
  const auto width = static_cast<size_t>(blueprint_.config.head_dim);
  const auto heads = static_cast<size_t>(blueprint_.config.heads);
  const float* gate = gated_queries_.data();
  for (int64_t r = 0; r < rows_; ++r) {
    float* out = attended_.row(r);
    for (size_t h = 0; h < heads; ++h, out += width, gate += 2 * width) {
      for (size_t i = 0; i < width; ++i) out[i] /= 1.0f + std::exp(-gate[width + i]);
    }
  }
}

Activations& LayerRunner::prepare_input(const TransformerLayer& layer) {
  const Linear& latent = layer.latent.query_latent;
  const Linear& queries = latent.weight.n > 0 ? latent : layer.q;
  prepare(input_, rows_, queries.weight.k, {&queries, &layer.k, &layer.v});
  return input_;
}

void LayerRunner::normalize_heads(const TransformerLayer& layer, KvHeads kv, bool queries) {
  const bool whole = blueprint_.query_key_norm == QueryKeyNorm::kRow;
  const auto normalize_all = [&](std::vector<float>& x, int heads,
                                 const std::vector<float>& weight) {
    backend_->rms_norm_heads(*pool_, x.data(), rows_, whole ? 1 : heads,
                             whole ? heads * kv.dim : kv.dim, weight.data(), blueprint_.norm_eps);
  };
  if (queries) normalize_all(q_, blueprint_.config.heads, layer.query_norm);
  if (layer.k.weight.n > 0) normalize_all(k_, kv.count, layer.key_norm);
}

// Before keys are normed, which may be the values.
void LayerRunner::normalize_values(const TransformerLayer& layer, KvHeads kv) {
  if (layer.k.weight.n == 0) return;
  if (layer.v.weight.n == 0) {
    std::copy_n(k_.data(), rows_ * kv.count * kv.dim, v_.data());
  }
  backend_->rms_norm_heads(*pool_, v_.data(), rows_, kv.count, kv.dim, ones_.data(),
                           blueprint_.norm_eps);
}

void LayerRunner::limit_heads(KvHeads kv) {
  const auto limit = static_cast<float>(blueprint_.query_key_value_limit);
  const auto hold = [&](std::vector<float>& x, int heads) {
    const size_t end =
        static_cast<size_t>(rows_) * static_cast<size_t>(heads) * static_cast<size_t>(kv.dim);
    for (size_t i = 0; i < end; ++i) x[i] = std::clamp(x[i], -limit, limit);
  };
  hold(q_, blueprint_.config.heads);
  hold(k_, kv.count);
  hold(v_, kv.count);
}

// Queries, keys and values of input_, as attention and the cache take them.
void LayerRunner::project(const TransformerLayer& layer, const LayerPlan& plan) {
  const ModelConfig& config = blueprint_.config;
  if (latent_) {
    const Rope& rope = ropes_[static_cast<size_t>(plan.rope)];
    return latent_->project(layer, input_, {rope.cos.data(), rope.sin.data()}, q_.data(),
                            k_.data());
  }
  float* queries = blueprint_.attention_gate ? gated_queries_.data() : q_.data();
  const KvHeads kv = kv_of(plan);
  std::array<MatmulTarget, 3> projections = {layer.q.to(queries)};
  size_t count = 1;
  if (layer.k.weight.n > 0) projections[count++] = layer.k.to(k_.data());
  if (layer.v.weight.n > 0) projections[count++] = layer.v.to(v_.data());
  backend_->matmul(*pool_, input_, std::span(projections).first(count));
  if (blueprint_.attention_gate) split_queries();
  if (blueprint_.value_norm) normalize_values(layer, kv);
  if (blueprint_.query_key_norm != QueryKeyNorm::kNone) normalize_heads(layer, kv);
  if (blueprint_.query_key_value_limit > 0.0) limit_heads(kv);
  if (plan.rope != LayerPlan::kNoRope) {
    const Rope& rope = ropes_[static_cast<size_t>(plan.rope)];
    turn(rope, q_, config.heads, kv.dim);
    if (plan.kv_source < 0) turn(rope, k_, kv.count, kv.dim);
  }
}

// Keys and values, to where the pass's rows have their places.
void LayerRunner::store(KvCache& cache, int plane) {
  backend_->store_kv(*pool_, cache.layout(plane), k_.data(), v_.data(),
                     cache.has_places(plane) ? windows_->slots() : slots_, cache.plane(plane));
}

// Of layers whose keys and values are two matrices' alone, with norms of heads and rotary
// embedding.
void LayerRunner::remember(const TransformerLayer& layer, const LayerPlan& plan, KvCache& cache,
                           int plane) {
  assert(!latent_ && plan.kv_source < 0 && !cache.has_places(plane));
  const KvHeads kv = kv_of(plan);
  const MatmulTarget projections[] = {layer.k.to(k_.data()), layer.v.to(v_.data())};
  backend_->matmul(*pool_, input_, projections);
  if (blueprint_.query_key_norm != QueryKeyNorm::kNone) normalize_heads(layer, kv, false);
  if (plan.rope != LayerPlan::kNoRope) {
    turn(ropes_[static_cast<size_t>(plan.rope)], k_, kv.count, kv.dim);
  }
  store(cache, plane);
}

void LayerRunner::attend(const TransformerLayer& layer, const LayerPlan& plan, KvCache& cache,
                         int plane) {
  const ModelConfig& config = blueprint_.config;
  project(layer, plan);
  const bool is_own = plan.kv_source < 0;
  if (!is_own) plane = plan.kv_source;
  const std::span<const kernels::AttentionRow> rows =
      plan.sees_chain ? chain_rows_ : attention_rows_;
  const bool placed = cache.has_places(plane);
  if (placed) windows_->build(*batch_, slots_, rows, *cache.windows());
  if (is_own) store(cache, plane);

  prepare(attended_, rows_, layer.o.weight.k, {&layer.o});
  kernels::AttentionArgs args;
  args.q = q_.data();
  args.out = latent_ ? latent_->attended() : attended_.row(0);
  args.heads = config.heads;
  args.scale = static_cast<float>(blueprint_.attention_scale != 0.0
                                      ? blueprint_.attention_scale
                                      : 1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  args.window = plan.window;
  args.soft_cap = static_cast<float>(blueprint_.attention_soft_cap);
  if (!layer.sinks.empty()) args.sinks = layer.sinks.data();
  args.layout = cache.layout(plane);
  args.kv = cache.plane(plane);
  args.rows = placed ? windows_->rows() : rows;
  args.workspace = &attention_;
  backend_->attention(*pool_, args);
  if (latent_) latent_->finish(layer, attended_);
  if (blueprint_.attention_gate) gate_attended();
  backend_->quantize(*pool_, attended_);
  add_to_stream(layer.o, attended_, layer.attention_post_norm);
}

void LayerRunner::run_experts(const TransformerLayer& layer) {
  const ExpertWeights& experts = layer.experts;
  prepare(input_, rows_, blueprint_.config.hidden,
          {&experts.router, &experts.shared_gate, &experts.shared_up, &experts.shared_router});
  normalize(layer.ffn_norm, x_.data(), blueprint_.config.hidden, input_);
  experts_->run(experts, input_, input_, x_.data());
}

// Both are normed, and their sum again.
void LayerRunner::run_experts_beside(const TransformerLayer& layer) {
  const ExpertWeights& experts = layer.experts;
  const int width = blueprint_.config.hidden;
  const size_t end = static_cast<size_t>(rows_) * static_cast<size_t>(width);
  const auto normalize_branch = [&](std::vector<float>& x, const Norm& norm) {
    backend_->rms_norm_heads(*pool_, x.data(), rows_, 1, width, norm.weight.data(),
                             blueprint_.norm_eps);
  };
  run_feed_forward(layer);
  const MatmulTarget output[] = {layer.down.to(branch_.data())};
  backend_->matmul(*pool_, gated_, output);
  normalize_branch(branch_, experts.beside_post_norm);

  prepare(router_input_, rows_, width, {&experts.router});
  normalize(experts.router_norm, x_.data(), width, router_input_);
  prepare(input_, rows_, width, {});
  normalize(experts.norm, x_.data(), width, input_);
  std::fill_n(of_experts_.data(), end, 0.0f);
  experts_->run(experts, router_input_, input_, of_experts_.data());
  normalize_branch(of_experts_, experts.post_norm);
  for (size_t i = 0; i < end; ++i) branch_[i] += of_experts_[i];
  backend_->add_rms_norm(*pool_, branch_.data(), rows_, width, layer.ffn_post_norm.weight.data(),
                         blueprint_.norm_eps, x_.data());
}

void LayerRunner::feed_forward(const TransformerLayer& layer) {
  if (!layer.experts.gate.empty()) {
    return blueprint_.experts_beside ? run_experts_beside(layer) : run_experts(layer);
  }
  run_feed_forward(layer);
  add_to_stream(layer.down, gated_, layer.ffn_post_norm);
}

// Leaves in gated_ what the last matrix is for.
void LayerRunner::run_feed_forward(const TransformerLayer& layer) {
  const ModelConfig& config = blueprint_.config;
  prepare(gated_, rows_, layer.down.weight.k, {&layer.down});
  if (blueprint_.gated) {
    prepare(input_, rows_, config.hidden, {&layer.gate, &layer.up});
    normalize(layer.ffn_norm, x_.data(), config.hidden, input_);
    const MatmulTarget projections[] = {layer.gate.to(gate_.data()), layer.up.to(up_.data())};
    backend_->matmul(*pool_, input_, projections);
    backend_->gated(*pool_, blueprint_.activation, gate_.data(), up_.data(), gated_);
  } else {
    prepare(input_, rows_, config.hidden, {&layer.up});
    normalize(layer.ffn_norm, x_.data(), config.hidden, input_);
    const MatmulTarget projection[] = {layer.up.to(up_.data())};
    backend_->matmul(*pool_, input_, projection);
    backend_->activate(*pool_, blueprint_.activation, up_.data(), gated_);
  }
}

void LayerRunner::run_linear(const TransformerLayer& layer, KvCache& cache, int plane) {
  const LinearAttentionWeights& linear = layer.linear;
  prepare(input_, rows_, blueprint_.config.hidden,
          {&linear.qkv, &linear.z, &linear.beta, &linear.alpha, &linear.beta_alpha,
           &linear.gate_before});
  normalize(layer.attention_norm, x_.data(), blueprint_.config.hidden, input_);
  const Activations& attended = linear_->run(linear, input_, cache, cache.state_plane(plane));
  add_to_stream(linear.out, attended, layer.attention_post_norm);
}

void LayerRunner::run(const TransformerLayer& layer, const LayerPlan& plan, KvCache& cache,
                      int plane) {
  if (layer.linear.any()) {
    run_linear(layer, cache, plane);
    return feed_forward(layer);
  }
  Activations& input = prepare_input(layer);
  normalize(layer.attention_norm, x_.data(), blueprint_.config.hidden, input);
  attend(layer, plan, cache, plane);
  feed_forward(layer);
}

}  // namespace aerie

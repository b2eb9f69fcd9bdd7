#include "model/device/device_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace aerie {
device::Glu glu_of(kernels::Activation activation) {
  switch (activation) {
    case kernels::Activation::kGeluTanh:
      return device::Glu::kGeluTanh;
    case kernels::Activation::kGelu:
      return device::Glu::kGelu;
    case kernels::Activation::kClampedSilu:
      return device::Glu::kClampedSilu;
    case kernels::Activation::kSilu:
      break;
  }
  return device::Glu::kSilu;
}

Expected<DeviceRunner> DeviceRunner::create(const Blueprint& blueprint, const ModelOptions& options,
                                            device::Device& device, bool sends_stream, int extra) {
  DeviceSizes sizes(blueprint, options);
  sizes.limits.extra += extra;
  sizes.limits.sends_stream = sends_stream;
  AERIE_ASSIGN_OR_RETURN(PassInput input, PassInput::create(device, sizes.limits, blueprint.ropes));
  AERIE_ASSIGN_OR_RETURN(DeviceBuffers buffers,
                         DeviceBuffers::create(device, sizes, blueprint, options));
  AERIE_ASSIGN_OR_RETURN(DeviceExpertRunner experts,
                         DeviceExpertRunner::create(blueprint, options.max_rows, device));
  AERIE_ASSIGN_OR_RETURN(DeviceLatentRunner latent,
                         DeviceLatentRunner::create(blueprint, options.max_rows, device));
  AERIE_ASSIGN_OR_RETURN(DeviceLinearRunner linear,
                         DeviceLinearRunner::create(blueprint, options.max_rows, device));
  AERIE_ASSIGN_OR_RETURN(DevicePerLayerRunner per_layer,
                         DevicePerLayerRunner::create(blueprint, options.max_rows, device));
  DeviceRunner runner(blueprint, sizes, device, std::move(input), std::move(buffers),
                      std::move(experts), std::move(latent), std::move(linear),
                      std::move(per_layer));
  AERIE_RETURN_IF_ERROR(
      runner.top_.allocate(device, sizes.wanted, 1, sizes.logit_width, sizes.ranks));
  return runner;
}

device::NextInput DeviceRunner::next_input(const float* norm) const {
  if (norm == nullptr || has_layer_norms()) return {};
  return {norm, buffers_.input.as<uint16_t>(), sizes_.hidden, buffers_.squares.as<float>(),
          sizes_.panels};
}

device::InputNorm DeviceRunner::input_norm(const DeviceMemory& squares) const {
  if (has_layer_norms()) return {};
  return {squares.as<float>(), sizes_.panels, sizes_.panels, blueprint_.config.hidden,
          static_cast<float>(blueprint_.norm_eps)};
}

device::Product DeviceRunner::product(device::PassCount rows, int most_rows, const uint16_t* x,
                                      int x_stride) const {
  device::Product p;
  p.rows = input_.count(rows);
  p.most_rows = most_rows;
  p.x = x;
  p.x_stride = x_stride;
  p.ordered = buffers_.ordered.as<void>();
  return p;
}

// Into `projected`, side by side: those of one kind at a time, of which all but the last have whole
// panels.
void DeviceRunner::project(std::span<const device::Matrix> matrices, const Input& input) {
  device::Product p;
  p.rows = input_.count(device::kRowCount);
  p.most_rows = shape_->sizes.rows;
  p.x = input.x;
  p.x_stride = input.stride;
  p.norm = input.norm;
  // The room is for inputs as wide as the stream.
  if (input.x == buffers_.input.as<uint16_t>()) p.ordered = buffers_.ordered.as<void>();
  p.y = buffers_.projected.as<float>();
  p.y_stride = sizes_.projected;
  constexpr int kAtOnce = std::extent_v<decltype(p.w)>;
  for (size_t i = 0; i < matrices.size();) {
    p.matrices = 0;
    int outputs = 0;
    // What is behind a panel that is not whole would begin behind the panel.
    for (; i < matrices.size() && p.matrices < kAtOnce && outputs % device::kPanel == 0 &&
           (p.matrices == 0 || matrices[i].kind == p.w[0].kind);
         ++i) {
      p.w[p.matrices++] = matrices[i];
      outputs += matrices[i].n;
    }
    device_->product(p);
    p.y += outputs;
  }
}

void DeviceRunner::place(const DeviceLayer& layer, const LayerPlan& plan, uint16_t* plane) {
  const ModelConfig& config = blueprint_.config;
  if (layer.latent.any()) {
    return latent_.place(layer.latent, latent_input(plan), buffers_.queries.as<uint16_t>(), plane);
  }
  device::Place place;
  place.pass = input_.pass();
  place.most_rows = shape_->sizes.rows;
  place.qkv = buffers_.projected.as<float>();
  place.stride = sizes_.projected;
  place.heads = config.heads;
  place.shape = cache_shape(config, plan);
  if (blueprint_.attention_gate) place.queries_apart = 2 * place.shape.head_dim;
  if (!plan.keys_are_values) place.values_apart = place.shape.kv_heads * place.shape.head_dim;
  if (plan.kv_source >= 0) place.shape.kv_heads = 0;
  place.query_norm = layer.query_norm;
  place.key_norm = layer.key_norm;
  place.whole_norms = blueprint_.query_key_norm == QueryKeyNorm::kRow;
  place.value_norm = blueprint_.value_norm;
  place.limit = static_cast<float>(blueprint_.query_key_value_limit);
  place.eps = static_cast<float>(blueprint_.norm_eps);
  if (plan.rope != LayerPlan::kNoRope) {
    place.turns = input_.turns(plan.rope);
    place.turns_stride = input_.stride();
    place.dimensions = blueprint_.ropes[static_cast<size_t>(plan.rope)].dimensions;
  }
  place.halves = blueprint_.rope_style == kernels::RopeStyle::kHalves;
  place.q = buffers_.queries.as<uint16_t>();
  place.plane = plane;
  device_->place(place);
}

DeviceLatentRunner::Input DeviceRunner::latent_input(const LayerPlan& plan) const {
  return {input_.pass(),    shape_->sizes.rows,          buffers_.projected.as<float>(),
          sizes_.projected, buffers_.ordered.as<void>(), input_.turns(plan.rope),
          input_.stride()};
}

void DeviceRunner::attend(const DeviceLayer& layer, const LayerPlan& plan, const uint16_t* plane) {
  const ModelConfig& config = blueprint_.config;
  const device::CacheShape shape = cache_shape(config, plan);
  device::Attend attend;
  attend.pass = plan.sees_chain ? input_.chains() : input_.pass();
  attend.most_rows = shape_->sizes.rows;
  attend.most_chunks = shape_->sizes.chunks;
  attend.q = buffers_.queries.as<uint16_t>();
  attend.plane = plane;
  attend.heads = config.heads;
  attend.shape = shape;
  attend.scale = static_cast<float>(blueprint_.attention_scale != 0.0
                                        ? blueprint_.attention_scale
                                        : 1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  attend.soft_cap = static_cast<float>(blueprint_.attention_soft_cap);
  attend.window = plan.window;
  attend.tile_rows = sizes_.limits.tile_rows;
  attend.sinks = layer.sinks;
  attend.partials = buffers_.partials.as<float>();
  attend.arrived = buffers_.arrived.as<unsigned>();
  attend.out = attended(plan);
  attend.out_stride = sizes_.attended;
  if (layer.latent.any()) latent_.receive(attend);
  // As many tiles at a time as there is room for what their chunks give.
  const int64_t of_tile =
      device::partial_floats(shape, config.heads, sizes_.limits.tile_rows, attend.most_chunks);
  const int at_once =
      static_cast<int>(std::clamp<int64_t>(sizes_.partials / of_tile, 1, shape_->sizes.tiles));
  for (int first = 0; first < shape_->sizes.tiles; first += at_once) {
    attend.first_tile = first;
    attend.most_tiles = std::min(at_once, shape_->sizes.tiles - first);
    device_->attend(attend);
  }
  if (layer.latent.any()) {
    latent_.finish(layer.latent, latent_input(plan), buffers_.attended.as<uint16_t>(),
                   sizes_.attended);
  }
  if (blueprint_.attention_gate) gate_attended();
}

// A head's gate lies behind its queries.
void DeviceRunner::gate_attended() {
  const ModelConfig& config = blueprint_.config;
  device::GateHeads gate;
  gate.rows = input_.count(device::kRowCount);
  gate.most_rows = shape_->sizes.rows;
  gate.heads = config.heads;
  gate.dim = config.head_dim;
  gate.by = device::GateHeads::By::kSigmoid;
  gate.gates = buffers_.projected.as<float>() + config.head_dim;
  gate.gates_stride = sizes_.projected;
  gate.gates_apart = 2 * config.head_dim;
  gate.out = buffers_.attended.as<uint16_t>();
  gate.out_stride = sizes_.attended;
  device_->gate_heads(gate);
}

// Of the stream behind a layer's feed-forward, which may not be the last that is added to it.
float DeviceRunner::scale_of(const DeviceLayer& layer) {
  return layer.per_layer.any() ? 1.0f : layer.output_scale;
}

// The residual stream += norm(matrix x), or matrix x where there is no norm after it, or a multiple
// of that; its scale; and the next input.
void DeviceRunner::add_to_stream(const device::Matrix& matrix, const uint16_t* x, int x_stride,
                                 const Behind& behind) {
  device::Product p = product(device::kRowCount, shape_->sizes.rows, x, x_stride);
  p.w[0] = matrix;
  if (behind.post_norm == nullptr) {
    p.output = device::Output::kResidual;
    p.y = input_.stream();
    p.y_stride = input_.stream_stride();
    p.factor = static_cast<float>(blueprint_.residual_scale);
    p.next = next_input(behind.next_norm);
    device_->product(p);
    if (has_layer_norms() && behind.next_norm != nullptr) normalize(behind.next_norm);
    return;
  }
  p.y = buffers_.branch.as<float>();
  p.y_stride = blueprint_.config.hidden;
  device_->product(p);
  device::AddNormed add;
  add.rows = p.rows;
  add.most_rows = p.most_rows;
  add.y = p.y;
  add.y_stride = p.y_stride;
  add.weight = behind.post_norm;
  add.eps = static_cast<float>(blueprint_.norm_eps);
  add.scale = behind.scale;
  add.x = input_.stream();
  add.x_stride = input_.stream_stride();
  add.width = blueprint_.config.hidden;
  add.next = next_input(behind.next_norm);
  device_->add_normed(add);
}

// Of a layer's experts, and of those alone what comes next.
DeviceExpertRunner::Input DeviceRunner::expert_input(const float* next_norm) {
  DeviceExpertRunner::Input input;
  input.product =
      product(device::kRowCount, shape_->sizes.rows, buffers_.input.as<uint16_t>(), sizes_.hidden);
  input.product.norm = input_norm(buffers_.squares);
  input.product.glu = glu_of(blueprint_.activation);
  input.stream = input_.stream();
  input.stream_stride = input_.stream_stride();
  input.next = next_input(next_norm);
  input.is_first = !std::exchange(ran_experts_, true);
  return input;
}

void DeviceRunner::feed_forward(const DeviceLayer& layer, const LayerPlan& plan,
                                const float* next_norm) {
  if (layer.experts.any()) {
    if (blueprint_.experts_beside) return run_beside(layer, plan, next_norm);
    return experts_.run(layer.experts, expert_input(next_norm));
  }
  run_gated(layer, plan);
  add_to_stream(layer.down, gated(plan), sizes_.ffn,
                {layer.ffn_post_norm, next_norm, scale_of(layer)});
}

// Experts and a feed-forward, each of the stream by a norm of its own.
void DeviceRunner::run_beside(const DeviceLayer& layer, const LayerPlan& plan,
                              const float* next_norm) {
  run_gated(layer, plan);
  device::Product p = product(device::kRowCount, shape_->sizes.rows, gated(plan), sizes_.ffn);
  p.w[0] = layer.down;
  p.y = buffers_.branch.as<float>();
  p.y_stride = blueprint_.config.hidden;
  device_->product(p);

  const DeviceExpertRunner::Input input = expert_input(next_norm);
  begin(layer.experts.router_norm);
  experts_.choose(layer.experts, input);
  begin(layer.experts.norm);
  experts_.give(layer.experts, input);
  device::AddBeside add;
  add.rows = p.rows;
  add.most_rows = p.most_rows;
  add.beside = p.y;
  add.beside_stride = p.y_stride;
  add.norm = layer.ffn_post_norm;
  add.eps = static_cast<float>(blueprint_.norm_eps);
  add.scale = scale_of(layer);
  add.x = input.stream;
  add.x_stride = input.stream_stride;
  add.width = blueprint_.config.hidden;
  add.next = input.next;
  experts_.add_beside(layer.experts, add);
}

// What a feed-forward's last matrix is for.
void DeviceRunner::run_gated(const DeviceLayer& layer, const LayerPlan& plan) {
  device::Product p =
      product(device::kRowCount, shape_->sizes.rows, buffers_.input.as<uint16_t>(), sizes_.hidden);
  p.norm = input_norm(buffers_.squares);
  p.out = gated(plan);
  p.out_stride = sizes_.ffn;
  p.glu = glu_of(blueprint_.activation);
  if (blueprint_.gated) {
    p.w[0] = layer.gate;
    p.w[1] = layer.up;
    p.matrices = 2;
    p.output = device::Output::kGated;
  } else {
    p.w[0] = layer.up;
    p.output = device::Output::kActivated;
  }
  device_->product(p);
}

void DeviceRunner::run_layer(const DeviceLayer& layer, const LayerPlan& plan, uint16_t* plane,
                             const Input& input, const float* next_norm) {
  project(layer.inputs, input);
  place(layer, plan, plane);
  attend(layer, plan, plane);
  add_to_stream(layer.o, attended(plan), sizes_.attended,
                {layer.attention_post_norm, layer.ffn_norm});
  feed_forward(layer, plan, next_norm);
}

// `plane`: of the device's; `number`: of the layer among those of the pass that keep states.
void DeviceRunner::run_linear(const DeviceLayer& layer, const StateMemory& states, int plane,
                              int number, const float* next_norm) {
  project(layer.linear.inputs, normed_stream());
  DeviceLinearRunner::Input input;
  input.pass = input_.states(number);
  input.most_rows = shape_->sizes.rows;
  input.most_sequences = shape_->sizes.state_sequences;
  input.projected = buffers_.projected.as<float>();
  input.stride = sizes_.projected;
  input.states = states.states(plane);
  input.records = states.records(plane);
  linear_.run(layer.linear, input);
  add_to_stream(layer.linear.out, linear_.gated().as<uint16_t>(),
                linear_gated_width(blueprint_.config), {layer.attention_post_norm, layer.ffn_norm});
  feed_forward(layer, {}, next_norm);
}

// Behind the rows' stream that the pass begins with, which are the embeddings where it begins with
// the first layer.
void DeviceRunner::start_per_layer(const DevicePerLayerInputs& weights) {
  const bool begins = shape_->first_layer == 0;
  DevicePerLayerRunner::Rows rows;
  rows.x = buffers_.input.as<uint16_t>();
  rows.product = product(device::kRowCount, shape_->sizes.rows, rows.x, sizes_.hidden);
  rows.tokens = input_.extra();
  rows.tokens_stride = input_.stride();
  rows.embedded = begins ? input_.stream() : rows.tokens + per_layer_floats(blueprint_, false);
  rows.embedded_stride = begins ? input_.stream_stride() : input_.stride();
  per_layer_.start(weights, rows);
}

// What the layer adds last.
void DeviceRunner::add_per_layer(const DeviceLayer& layer, int index, const float* next_norm) {
  device::Product p =
      product(device::kRowCount, shape_->sizes.rows, buffers_.input.as<uint16_t>(), sizes_.hidden);
  p.glu = glu_of(blueprint_.activation);
  per_layer_.gate(layer.per_layer, index, p);
  add_to_stream(layer.per_layer.out, per_layer_.gated(), per_layer_.gated_stride(),
                {layer.per_layer.post_norm, next_norm, layer.output_scale});
}

// A layer of a model's, with attention.
void DeviceRunner::run_attending(const DeviceWeights& weights, int index, uint16_t* plane,
                                 const float* next_norm) {
  const auto at = static_cast<size_t>(index);
  const DeviceLayer& layer = weights.layers[at];
  if (!layer.per_layer.any()) {
    return run_layer(layer, blueprint_.layers[at], plane, normed_stream(), next_norm);
  }
  run_layer(layer, blueprint_.layers[at], plane, normed_stream(), per_layer_.ones());
  add_per_layer(layer, index, next_norm);
}

// Of the stream that enters the layer.
void DeviceRunner::tap(int layer) {
  const int hidden = blueprint_.config.hidden;
  if (shape_->sizes.tapped == 0) return;
  for (size_t t = 0; t < shape_->taps.size(); ++t) {
    if (shape_->taps[t] != layer) continue;
    device::CopyRows copy;
    copy.rows = input_.count(device::kTappedCount);
    copy.most_rows = shape_->sizes.tapped;
    copy.from = input_.pass().tapped;
    copy.x = input_.stream();
    copy.x_stride = input_.stream_stride();
    copy.width = hidden;
    copy.out = buffers_.taps.as<float>() + t * static_cast<size_t>(hidden);
    copy.out_stride = static_cast<int64_t>(shape_->taps.size()) * hidden;
    device_->copy_rows(copy);
  }
}

// Of the stream of so many rows.
device::LayerNorm DeviceRunner::layer_norm(device::PassCount rows, int most_rows,
                                           const float* norm) const {
  device::LayerNorm args;
  args.rows = input_.count(rows);
  args.most_rows = most_rows;
  args.x = input_.stream();
  args.x_stride = input_.stream_stride();
  args.width = blueprint_.config.hidden;
  args.weight = norm;
  args.bias = norm + args.width;
  args.eps = static_cast<float>(blueprint_.norm_eps);
  return args;
}

// The next input, of a norm that products cannot make up for.
void DeviceRunner::normalize(const float* norm) {
  device::LayerNorm args = layer_norm(device::kRowCount, shape_->sizes.rows, norm);
  args.out = buffers_.input.as<uint16_t>();
  args.out_stride = sizes_.hidden;
  device_->layer_norm(args);
}

void DeviceRunner::norm_states(const float* norm) {
  const int hidden = blueprint_.config.hidden;
  if (has_layer_norms()) {
    device::LayerNorm args = layer_norm(device::kStatedCount, shape_->sizes.stated, norm);
    args.from = input_.pass().stated;
    args.floats = buffers_.states.as<float>();
    args.out_stride = hidden;
    return device_->layer_norm(args);
  }
  device::CopyRows copy;
  copy.rows = input_.count(device::kStatedCount);
  copy.most_rows = shape_->sizes.stated;
  copy.from = input_.pass().stated;
  copy.x = input_.stream();
  copy.x_stride = input_.stream_stride();
  copy.width = hidden;
  copy.weight = norm;
  copy.eps = static_cast<float>(blueprint_.norm_eps);
  copy.out = buffers_.states.as<float>();
  copy.out_stride = hidden;
  device_->copy_rows(copy);
}

// Of rows that want logits.
void DeviceRunner::norm_wanted(const float* norm) {
  const int wanted = shape_->sizes.wanted;
  if (has_layer_norms()) {
    device::LayerNorm args = layer_norm(device::kWantedCount, wanted, norm);
    args.from = input_.pass().wanted;
    args.out = buffers_.head_input.as<uint16_t>();
    args.out_stride = sizes_.hidden;
    return device_->layer_norm(args);
  }
  device::Begin begin;
  begin.rows = input_.count(device::kWantedCount);
  begin.most_rows = wanted;
  begin.from = input_.pass().wanted;
  begin.x = input_.stream();
  begin.x_stride = input_.stream_stride();
  begin.width = blueprint_.config.hidden;
  begin.next = {norm, buffers_.head_input.as<uint16_t>(), sizes_.hidden,
                buffers_.head_squares.as<float>(), sizes_.panels};
  device_->begin(begin);
}

void DeviceRunner::head(const DeviceWeights& weights) {
  if (shape_->sizes.stated > 0) norm_states(weights.output_norm);
  const int wanted = shape_->sizes.wanted;
  if (wanted == 0) return;
  norm_wanted(weights.output_norm);
  device::Product p =
      product(device::kWantedCount, wanted, buffers_.head_input.as<uint16_t>(), sizes_.hidden);
  p.w[0] = weights.output;
  p.norm = input_norm(buffers_.head_squares);
  p.y = buffers_.logits.as<float>();
  p.y_stride = sizes_.logit_width;
  p.factor = static_cast<float>(1.0 / blueprint_.logit_divisor);
  p.soft_cap = static_cast<float>(blueprint_.logit_soft_cap);
  device_->product(p);

  if (top_.width() > 0) {
    top_.find(p.rows, wanted, p.y, buffers_.top.as<float>(), top_.width());
  } else {
    find_best(wanted);
  }
}

void DeviceRunner::find_best(int wanted) {
  const int room = sizes_.wanted;
  device::Best best;
  best.rows = input_.count(device::kWantedCount);
  best.most_rows = wanted;
  best.logits = buffers_.logits.as<float>();
  best.stride = sizes_.logit_width;
  best.n = sizes_.logit_width;
  best.part_values = buffers_.best_parts.as<float>();
  best.part_ids = buffers_.best_parts.as<int32_t>() + room * device::kBestParts;
  best.arrived = buffers_.best_parts.as<unsigned>() + room * device::kBestParts * 2;
  best.values = buffers_.best.as<float>();
  best.ids = buffers_.best.as<int32_t>() + wanted;  // behind as many values
  device_->best(best);
}

// The next input, of the stream as it is.
void DeviceRunner::begin(const float* norm) {
  if (has_layer_norms()) return normalize(norm);
  device::Begin begin;
  begin.rows = input_.count(device::kRowCount);
  begin.most_rows = shape_->sizes.rows;
  begin.x = input_.stream();
  begin.x_stride = input_.stream_stride();
  begin.width = blueprint_.config.hidden;
  begin.next = next_input(norm);
  device_->begin(begin);
}

void DeviceRunner::run(const DeviceWeights& weights, const PassShape& shape,
                       const DevicePlanes::Of& planes) {
  start(shape);
  const auto is_skipped = [&](int layer) {
    return std::ranges::binary_search(shape.skipped, layer);
  };
  // The norm of the next layer that is run, at `layer` or behind it.
  const auto norm_from = [&](int layer) -> const float* {
    while (layer < shape.end_layer && is_skipped(layer)) ++layer;
    if (layer >= shape.end_layer) return nullptr;
    return weights.layers[static_cast<size_t>(layer)].attention_norm;
  };
  if (const float* norm = norm_from(shape.first_layer); norm != nullptr) {
    if (weights.per_layer.project.n > 0) start_per_layer(weights.per_layer);
    begin(norm);
  }
  const ModelConfig& config = blueprint_.config;
  int skipped = 0, state_plane = 0, number = 0;
  for (int i = weights.first_layer; i < shape.first_layer; ++i) {
    state_plane += config.is_linear(i) ? 1 : 0;
  }
  for (int i = shape.first_layer; i < shape.end_layer; ++i) {
    tap(i);
    if (is_skipped(i)) {
      ++skipped;
      continue;
    }
    const auto at = static_cast<size_t>(i);
    if (config.is_linear(i)) {
      run_linear(weights.layers[at], planes.states, state_plane++, number++, norm_from(i + 1));
      continue;
    }
    const LayerPlan& plan = blueprint_.layers[at];
    int plane = i - weights.first_layer - skipped;
    if (plan.kv_source >= 0) {
      const auto before = std::ranges::lower_bound(shape.skipped, plan.kv_source);
      plane =
          plan.kv_source - weights.first_layer - static_cast<int>(before - shape.skipped.begin());
    }
    run_attending(weights, i, planes.planes[static_cast<size_t>(plane)], norm_from(i + 1));
  }
  tap(shape.end_layer);
  head(weights);
}

}  // namespace aerie

#include "model/attention/linear_runner.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace aerie {

using kernels::Activations;
using kernels::MatmulTarget;
using kernels::StateRow;
using kernels::StateSequence;

namespace {

constexpr double kHeadEps = 1e-6;  // of the lengths of queries and keys, for every model
constexpr int64_t kElementGrain = 4096;
constexpr int64_t kRowGrain = 4;

double softplus(double x) {
  return x > 20.0 ? x : std::log1p(std::exp(x));
}

}  // namespace

LinearRunner::LinearRunner(const Blueprint& blueprint, const ModelOptions& options)
    : shape_(blueprint.config.linear),
      layout_(state_layout(blueprint.config)),
      norm_eps_(blueprint.norm_eps),
      backend_(options.backend),
      pool_(options.pool),
      plan_(options.max_rows) {
  if (shape_.heads == 0) return;
  ones_.assign(static_cast<size_t>(shape_.v_width() / shape_.key_heads), 1.0f);
  const double dim = shape_.key_dim;
  // Heads of length 1, queries divided by the root of their dimension besides.
  key_norm_.assign(static_cast<size_t>(shape_.key_dim), static_cast<float>(1.0 / std::sqrt(dim)));
  query_norm_.assign(static_cast<size_t>(shape_.key_dim), static_cast<float>(1.0 / dim));
}

Expected<std::unique_ptr<LinearRunner>> LinearRunner::create(const Blueprint& blueprint,
                                                             const ModelOptions& options) {
  if (blueprint.config.count_linear() == 0) return std::unique_ptr<LinearRunner>();
  std::unique_ptr<LinearRunner> runner(new LinearRunner(blueprint, options));
  AERIE_RETURN_IF_ERROR(runner->allocate(options.max_rows, options.pool->threads()));
  return runner;
}

Status LinearRunner::allocate(int max_rows, int threads) {
  const auto rows = static_cast<size_t>(max_rows);
  const auto heads = static_cast<size_t>(shape_.heads);
  const auto width = static_cast<size_t>(shape_.out_width());
  qkv_.resize(rows * static_cast<size_t>(shape_.channels()));
  q_.resize(rows * static_cast<size_t>(shape_.k_width()));
  k_.resize(q_.size());
  for (std::vector<float>* wide : {&v_, &z_, &out_}) wide->resize(rows * width);
  for (std::vector<float>* list : {&beta_, &alpha_, &decay_}) list->resize(rows * heads);
  beta_alpha_.resize(2 * rows * heads);
  state_sequences_.reserve(rows);
  inputs_.reserve(rows * static_cast<size_t>(shape_.taps));
  copies_.reserve(rows * (2 + static_cast<size_t>(shape_.taps)));
  AERIE_ASSIGN_OR_RETURN(gated_, Activations::allocate(max_rows, shape_.out_width()));
  if (shape_.kind == LinearKind::kStateSpace) {
    AERIE_ASSIGN_OR_RETURN(wide_, Activations::allocate(max_rows, shape_.v_width()));
  }
  AERIE_ASSIGN_OR_RETURN(workspace_, kernels::StateWorkspace::allocate(layout_, threads, max_rows));
  return {};
}

void LinearRunner::start(const ForwardBatch& batch) {
  batch_ = &batch;
  planned_ = false;
}

// The input that came `back` positions before the first row: of settled records, then of the state.
const float* LinearRunner::settled_input(const StateSequence& sequence, int back,
                                         const float* records, const float* states) const {
  const auto settled = static_cast<int>(sequence.settled.size());
  if (back <= settled) {
    const int32_t record = sequence.settled[static_cast<size_t>(settled - back)];
    return records + record * layout_.record() + layout_.input();
  }
  const int index = layout_.taps - 1 - (back - settled);
  if (sequence.blank || index < 0) return nullptr;
  return states + sequence.slot * layout_.state() + layout_.inputs() + index * layout_.channels();
}

// The row's inputs to the convolution, its own last.
void LinearRunner::trace_inputs(int32_t row, const float* records, const float* states,
                                const float** out) {
  int t = layout_.taps - 1;
  for (;; row = plan_.rows()[static_cast<size_t>(row)].parent) {
    out[t--] = qkv_.data() + row * layout_.channels();
    if (t < 0 || plan_.rows()[static_cast<size_t>(row)].parent < 0) break;
  }
  const std::span<const int32_t> above = plan_.rows()[static_cast<size_t>(row)].above;
  for (size_t i = above.size(); t >= 0 && i-- > 0;) {
    out[t--] = records + above[i] * layout_.record() + layout_.input();
  }
  const StateSequence& sequence = state_sequences_[plan_.sequence_of(static_cast<size_t>(row))];
  for (int back = 1; t >= 0; ++back) out[t--] = settled_input(sequence, back, records, states);
}

// The state's inputs become those before the first row.
void LinearRunner::settle_inputs(const StateSequence& sequence, const float* records,
                                 float* states) {
  float* own = states + sequence.slot * layout_.state() + layout_.inputs();
  for (int i = 0; i < layout_.taps - 1; ++i) {
    copies_.push_back({settled_input(sequence, layout_.taps - 1 - i, records, states),
                       own + i * layout_.channels()});
  }
}

// What each row's convolution reads in this layer, and what is kept of it for the next pass.
void LinearRunner::set_inputs(StateStore& store, int plane) {
  float *states = store.states(plane), *records = store.records(plane);
  state_sequences_.clear();
  for (const StatePlan::Sequence& sequence : plan_.sequences()) {
    const int base = store.base(sequence.id, plane);
    assert(base <= sequence.end);
    state_sequences_.push_back({store.slot(sequence.id), base == 0,
                                store.records(sequence.id, base, sequence.end),
                                plan_.rows_of(sequence)});
    if (sequence.settled == 0) continue;
    StateRow& last = plan_.rows()[static_cast<size_t>(state_sequences_.back().rows.back())];
    last.needed = true;
    last.into[1] = store.slot(sequence.id);
  }
  const auto taps = static_cast<size_t>(layout_.taps);
  inputs_.resize(plan_.rows().size() * taps);
  copies_.clear();
  for (const int32_t r : plan_.order()) {
    const float** inputs = inputs_.data() + static_cast<size_t>(r) * taps;
    trace_inputs(r, records, states, inputs);
    const StateRow& row = plan_.rows()[static_cast<size_t>(r)];
    if (row.record >= 0) {
      copies_.push_back(
          {inputs[taps - 1], records + row.record * layout_.record() + layout_.input()});
    }
    for (const int32_t slot : row.into) {
      if (slot < 0) continue;
      float* own = states + slot * layout_.state() + layout_.inputs();
      for (size_t t = 1; t < taps; ++t, own += layout_.channels()) {
        copies_.push_back({inputs[t], own});
      }
    }
  }
  for (size_t s = 0; s < state_sequences_.size(); ++s) {
    if (state_sequences_[s].settled.empty() || plan_.sequences()[s].settled > 0) continue;
    settle_inputs(state_sequences_[s], records, states);
  }
}

// beta = sigmoid(b), decay = e^(rate softplus(a + step)).
void LinearRunner::make_gates(const LinearAttentionWeights& layer) {
  const auto heads = static_cast<size_t>(shape_.heads);
  const size_t together = heads / static_cast<size_t>(shape_.key_heads);
  const bool joint = layer.beta_alpha.weight.n > 0;
  const auto rows = static_cast<int64_t>(plan_.rows().size());
  pool_->parallel_for(rows, 16, [&](int64_t begin, int64_t end, int) {
    for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      for (size_t h = 0; h < heads; ++h) {
        const size_t at = r * heads + h;
        float b = beta_[at], a = alpha_[at];
        if (joint) {
          const float* group = beta_alpha_.data() + 2 * (r * heads + h / together * together);
          b = group[h % together];
          a = group[together + h % together];
        }
        const double step = softplus(double{a} + double{layer.step[h]});
        beta_[at] = static_cast<float>(1.0 / (1.0 + std::exp(-double{b})));
        decay_[at] = static_cast<float>(std::exp(double{layer.rate[h]} * step));
      }
    }
  });
}

// The step is softplus(a + step): beta is the step, decay = e^(rate step).
void LinearRunner::make_steps(const LinearAttentionWeights& layer) {
  const auto heads = static_cast<size_t>(shape_.heads);
  const auto rows = static_cast<int64_t>(plan_.rows().size());
  pool_->parallel_for(rows, 16, [&](int64_t begin, int64_t end, int) {
    for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      for (size_t h = 0; h < heads; ++h) {
        const size_t at = r * heads + h;
        const double step = softplus(double{alpha_[at]} + double{layer.step[h]});
        beta_[at] = static_cast<float>(step);
        decay_[at] = static_cast<float>(std::exp(double{layer.rate[h]} * step));
      }
    }
  });
}

void LinearRunner::project(const LinearAttentionWeights& layer, const Activations& x) {
  MatmulTarget products[4] = {layer.qkv.to(qkv_.data()), layer.z.to(z_.data())};
  size_t count = 3;
  switch (shape_.kind) {
    case LinearKind::kDeltaRule:
      if (layer.beta_alpha.weight.n > 0) {
        products[2] = layer.beta_alpha.to(beta_alpha_.data());
        break;
      }
      products[2] = layer.beta.to(beta_.data());
      products[3] = layer.alpha.to(alpha_.data());
      count = 4;
      break;
    case LinearKind::kStateSpace:
      products[2] = layer.alpha.to(alpha_.data());
      break;
    case LinearKind::kShortConv:
      products[2] = layer.gate_before.to(v_.data());
  }
  backend_->matmul(*pool_, x, std::span(products).first(count));
  if (shape_.kind == LinearKind::kShortConv) gate_input();
}

void LinearRunner::gate_input() {
  const auto end = static_cast<int64_t>(plan_.rows().size()) * shape_.plain;
  pool_->parallel_for(end, kElementGrain, [&](int64_t begin, int64_t stop, int) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(stop); ++i) qkv_[i] *= v_[i];
  });
}

// The channels of a state space are its values, keys and queries, in this order.
void LinearRunner::convolve(const LinearAttentionWeights& layer) {
  using Part = kernels::ShortConvArgs::Part;
  const Part queries = {q_.data(), layout_.keys()}, keys = {k_.data(), layout_.keys()},
             values = {v_.data(), layout_.values()};
  const Part in_delta_rule[] = {queries, keys, values}, in_state_space[] = {values, keys, queries},
             plain[] = {{out_.data(), layout_.plain}};
  kernels::ShortConvArgs args = {layout_.taps, layer.conv.data(), inputs_, in_delta_rule, copies_};
  if (shape_.kind == LinearKind::kStateSpace) args.parts = in_state_space;
  if (shape_.kind == LinearKind::kShortConv) args.parts = plain;
  if (!layer.conv_bias.empty()) args.bias = layer.conv_bias.data();
  args.silu = shape_.kind != LinearKind::kShortConv;
  backend_->short_conv(*pool_, args);
}

void LinearRunner::normalize_keys() {
  const auto rows = static_cast<int64_t>(plan_.rows().size());
  const double eps = kHeadEps / shape_.key_dim;
  backend_->rms_norm_heads(*pool_, q_.data(), rows, shape_.key_heads, shape_.key_dim,
                           query_norm_.data(), eps);
  backend_->rms_norm_heads(*pool_, k_.data(), rows, shape_.key_heads, shape_.key_dim,
                           key_norm_.data(), eps);
}

void LinearRunner::remember(StateStore& states, int plane) {
  kernels::DeltaRuleArgs args;
  args.layout = layout_;
  args.q = q_.data();
  args.k = k_.data();
  args.v = v_.data();
  args.decay = decay_.data();
  args.beta = beta_.data();
  args.out = out_.data();
  args.sequences = state_sequences_;
  args.rows = plan_.rows();
  args.states = states.states(plane);
  args.records = states.records(plane);
  args.workspace = &workspace_;
  args.subtract = shape_.kind == LinearKind::kDeltaRule;
  backend_->delta_rule(*pool_, args);
}

// norm(silu(z) (out + skip v)), where the values that belong to a key head have a norm together.
void LinearRunner::finish_state_space(const LinearAttentionWeights& layer) {
  const auto rows = static_cast<int64_t>(plan_.rows().size());
  const auto width = static_cast<size_t>(shape_.v_width());
  const auto dim = static_cast<size_t>(shape_.value_dim);
  pool_->parallel_for(rows * shape_.heads, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t head = begin; head < end; ++head) {
      const float skip = layer.skip[static_cast<size_t>(head % shape_.heads)];
      const size_t first = static_cast<size_t>(head) * dim;
      for (size_t i = first; i < first + dim; ++i) out_[i] += skip * v_[i];
    }
  });
  prepare_activations(*backend_, rows, shape_.v_width(), {}, wide_);
  backend_->gated(*pool_, kernels::Activation::kSilu, z_.data(), out_.data(), wide_);
  backend_->rms_norm_heads(*pool_, wide_.row(0), rows, shape_.key_heads,
                           shape_.v_width() / shape_.key_heads, ones_.data(), norm_eps_);
  pool_->parallel_for(rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* from = wide_.row(r);
      float* to = gated_.row(r);
      for (size_t i = 0; i < width; ++i) to[i] = from[i] * layer.head_norm[i];
    }
  });
  backend_->quantize(*pool_, gated_);
}

void LinearRunner::finish_short_conv() {
  const int64_t width = shape_.plain;
  pool_->parallel_for(std::ssize(plan_.rows()), kRowGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float *gate = z_.data() + r * width, *out = out_.data() + r * width;
      float* to = gated_.row(r);
      for (int64_t i = 0; i < width; ++i) to[i] = gate[i] * out[i];
    }
  });
  backend_->quantize(*pool_, gated_);
}

void LinearRunner::finish(const LinearAttentionWeights& layer) {
  const auto rows = static_cast<int64_t>(plan_.rows().size());
  prepare_activations(*backend_, rows, shape_.out_width(), {&layer.out}, gated_);
  if (shape_.kind == LinearKind::kStateSpace) return finish_state_space(layer);
  if (shape_.kind == LinearKind::kShortConv) return finish_short_conv();
  backend_->rms_norm_heads(*pool_, out_.data(), rows, shape_.heads, shape_.value_dim,
                           layer.head_norm.data(), norm_eps_);
  backend_->gated(*pool_, kernels::Activation::kSilu, z_.data(), out_.data(), gated_);
}

const Activations& LinearRunner::run(const LinearAttentionWeights& layer, const Activations& x,
                                     KvCache& cache, int plane) {
  StateStore& states = *cache.states();
  if (!planned_) plan_.build(*batch_, cache);
  planned_ = true;
  project(layer, x);
  set_inputs(states, plane);
  convolve(layer);
  if (shape_.kind == LinearKind::kDeltaRule) {
    normalize_keys();
    make_gates(layer);
  } else if (shape_.kind == LinearKind::kStateSpace) {
    make_steps(layer);
  }
  if (shape_.heads > 0) remember(states, plane);
  for (const StatePlan::Sequence& sequence : plan_.sequences()) {
    states.advance(sequence.id, plane, sequence.end + sequence.settled);
  }
  finish(layer);
  return gated_;
}

}  // namespace aerie

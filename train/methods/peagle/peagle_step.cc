#include "train/methods/peagle/peagle_step.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "train/nn/ops.h"
#include "train/nn/roots.h"

namespace aerie::train {
Eagle3Head::Entry PEagleStep::enter_context() const {
  return head_.enter(head_.embed(batch_.shifted(batch_.tokens, 1)), head_.fuse(batch_.taps));
}

// Of one row, for all masked rows are the same up to their places.
Eagle3Head::Entry PEagleStep::enter_masked() const {
  const at::Tensor token = at::full({1}, head_.options().mask_token, batch_.tokens.options());
  return head_.enter(head_.embed(token), head_.fuse(head_.mask_hidden().view({1, -1})));
}

Eagle3Head::Entry PEagleStep::enter(size_t layer, const at::Tensor& stream) const {
  const LlamaLayer& l = head_.layers()[layer];
  return {rms_norm(stream, l.input_norm, l.shape.norm_eps), stream};
}

PEagleStep::Result PEagleStep::run_layer(size_t layer, const Eagle3Head::Entry& entry,
                                         const Rotary& rotary, const ElementRows& rows,
                                         const Keys& context) const {
  const LlamaLayer& l = head_.layers()[layer];
  const Projections p = l.project(entry.input, rotary);
  const Keys keys = {p.k, p.v.expand_as(p.k)};
  const at::Tensor attended = rows.chained ? attend_elements(p.q, context, keys, rows)
                                           : attend_elements(p.q, keys, {}, rows);
  return {l.feed_forward(entry.stream + l.output(attended)), keys};
}

at::Tensor PEagleStep::run_chains(const ElementRows& rows, const std::vector<Keys>& context) const {
  const Rotary rotary = head_.rotary(batch_.positions.index_select(0, rows.anchors) + rows.depths);
  at::Tensor stream;
  for (size_t i = 0; i < layers(); ++i) {
    stream =
        run_layer(i, i == 0 ? enter_masked() : enter(i, stream), rotary, rows, context[i]).stream;
  }
  return stream;
}

// Adds the figures of rows whose streams behind the last layer [rows, hidden] are to say what the
// target says at `places` of the batch, and the gradients of the output's weights. Returns that of
// the streams, if there is training.
at::Tensor PEagleStep::judge(const at::Tensor& stream, const at::Tensor& places,
                             const at::Tensor& depths) {
  const int64_t most = std::max(Settings::kLeastRows, settings_.logits / head_.draft_ids().size(0));
  at::Tensor gradient;
  if (settings_.train) gradient = at::empty_like(stream, at::MemoryFormat::Contiguous);
  for (int64_t begin = 0; begin < stream.size(0); begin += most) {
    const int64_t rows = std::min(most, stream.size(0) - begin);
    const at::Tensor input = stream.narrow(0, begin, rows).detach();
    input.requires_grad_(settings_.train);
    const at::Tensor logits = head_.logits(input);
    const at::Tensor place = places.narrow(0, begin, rows);
    at::Tensor wanted;
    {
      const at::NoGradGuard no_grad;
      // Rows of several depths stand in the same place.
      const auto [distinct, index, counts] = at::_unique2(place, true, true);
      wanted =
          head_.wanted_logits(batch_.last.index_select(0, distinct + 1)).index_select(0, index);
    }
    const at::Tensor loss = divergence(settings_.loss, wanted, logits);
    if (settings_.train) {
      (loss.sum() * settings_.scale).backward();
      gradient.narrow(0, begin, rows).copy_(input.grad());
    }
    const at::Tensor next = batch_.tokens.index_select(0, place + 2);
    const at::Tensor hits = head_.draft_ids().index_select(0, logits.detach().argmax(-1)).eq(next);
    sums_.index_add_(1, depths.narrow(0, begin, rows),
                     at::stack({loss.detach().to(at::kDouble), hits.to(at::kDouble),
                                at::ones_like(loss, at::kDouble)}));
  }
  return gradient;
}

PEagleStep::Streams PEagleStep::streams(const Chains& chains) const {
  Streams out;
  std::vector<Keys> keys;
  for (size_t i = 0; i < layers(); ++i) {
    Result result =
        run_layer(i, i == 0 ? enter_context() : enter(i, out.context), rotary_, context_, {});
    out.context = std::move(result.stream);
    keys.push_back(std::move(result.keys));
  }
  if (chains.count() > 0) out.chains = run_chains(rows_of(chains, 0, chains.count()), keys);
  return out;
}

void PEagleStep::run_whole(const Chains& chains) {
  const Streams out = streams(chains);
  Roots roots;
  const at::Tensor asked = out.context.index_select(0, asked_);
  roots.add(asked, judge_context(asked));
  if (out.chains.defined()) {
    roots.add(out.chains, judge_chains(out.chains, rows_of(chains, 0, chains.count())));
  }
  roots.backward();
}

void PEagleStep::run_in_parts(const Chains& chains,
                              const std::vector<std::pair<int64_t, int64_t>>& cuts) {
  std::vector<at::Tensor> inputs(1);  // of each layer but the first
  std::vector<Keys> keys;
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < layers(); ++i) {
      Result result =
          run_layer(i, i == 0 ? enter_context() : enter(i, inputs.back()), rotary_, context_, {});
      inputs.push_back(std::move(result.stream));
      keys.push_back(std::move(result.keys));
    }
  }
  for (const Keys& layer : keys) {
    layer.k.requires_grad_(settings_.train);
    layer.v.requires_grad_(settings_.train);
  }
  for (const auto& [begin, end] : cuts) {
    if (begin == end) continue;
    const ElementRows rows = rows_of(chains, begin, end);
    const at::Tensor masked = run_chains(rows, keys);
    const at::Tensor gradient = judge_chains(masked, rows);
    if (settings_.train) masked.backward(gradient);
  }
  const at::Tensor gradient = judge_context(inputs.back().index_select(0, asked_));
  if (!settings_.train) return;
  const at::Tensor all = at::zeros_like(inputs.back()).index_copy_(0, asked_, gradient);
  inputs.pop_back();
  back_through_context(std::move(inputs), std::move(keys), all);
}

// `gradient` is that of the last layer's output; keys and values hold their own, of all chains.
void PEagleStep::back_through_context(std::vector<at::Tensor> inputs, std::vector<Keys> keys,
                                      at::Tensor gradient) const {
  for (size_t i = layers(); i-- > 0;) {
    at::Tensor input = std::move(inputs[i]);
    if (i > 0) input.requires_grad_(true);
    Roots roots;
    {
      const Result again =
          run_layer(i, i == 0 ? enter_context() : enter(i, input), rotary_, context_, {});
      roots.add(again.stream, gradient);
      roots.add(again.keys.k, keys[i].k.grad());
      roots.add(again.keys.v, keys[i].v.grad());
    }
    roots.backward();
    keys.pop_back();
    if (i > 0) gradient = input.grad();
  }
}

}  // namespace aerie::train

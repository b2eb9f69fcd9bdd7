#include "train/methods/peagle/peagle_attention.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>

namespace aerie::train {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
// Ways there and back must choose the same types.
using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

// What attention reads, detached.
struct Inputs {
  at::Tensor q;
  Keys context, own;
  ElementRows rows;

  int64_t kv_heads() const { return context.k.size(1); }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(q.size(2))); }
  RowRun run(int64_t i) const {
    const int64_t* run = rows.runs.data_ptr<int64_t>() + 7 * i;
    return {run[0], run[1], run[2], run[3], run[4], run[5], run[6]};
  }
};

// x [rows, heads, dimension] of a run -> [kv heads, rows * heads of each, dimension], so that a
// product takes all heads that share their keys.
at::Tensor grouped(const at::Tensor& x, const RowRun& run, int64_t kv_heads) {
  const int64_t group = x.size(1) / kv_heads;
  return x.narrow(0, run.begin, run.rows)
      .view({run.rows, kv_heads, group, x.size(2)})
      .transpose(0, 1)
      .reshape({kv_heads, run.rows * group, x.size(2)});
}

at::Tensor ungrouped(const at::Tensor& x, const RowRun& run) {
  return x.view({x.size(0), run.rows, -1, x.size(2)})
      .transpose(0, 1)
      .reshape({run.rows, -1, x.size(2)});
}

// A run's keys or values, the context's before its own: [kv heads, keys, dimension].
at::Tensor gathered(const at::Tensor& context, const at::Tensor& own, const RowRun& run) {
  at::Tensor all = context.narrow(0, run.context, run.seen);
  if (own.defined()) {
    all = at::cat({all, own.narrow(0, run.own, run.own_end - run.own)}, 0);
  }
  return all.transpose(0, 1);
}

// True for keys that a row does not see, of those that not all rows see: [rows, keys - run.clear].
at::Tensor hidden_keys(const ElementRows& rows, const RowRun& run) {
  const auto options = rows.anchors.options();
  const at::Tensor anchors = rows.anchors.narrow(0, run.begin, run.rows).unsqueeze(1);
  at::Tensor hidden =
      at::arange(run.context + run.clear, run.context + run.seen, options).unsqueeze(0).gt(anchors);
  if (!rows.chained) return hidden;
  const at::Tensor keys = at::arange(run.own, run.own_end, options).unsqueeze(0);
  const at::Tensor begins = rows.begins.narrow(0, run.begin, run.rows).unsqueeze(1);
  const at::Tensor ends = rows.ends.narrow(0, run.begin, run.rows).unsqueeze(1);
  return at::cat({hidden, keys.ge(ends).logical_or_(keys.lt(begins))}, 1);
}

// [kv heads, rows * heads of each, keys].
at::Tensor weights_of(const Inputs& in, const RowRun& run, const at::Tensor& q,
                      const at::Tensor& keys) {
  at::Tensor scores = at::bmm(q, keys.transpose(1, 2));
  const at::Tensor hidden = hidden_keys(in.rows, run);
  scores.view({scores.size(0), run.rows, -1, scores.size(2)})
      .narrow(3, run.clear, hidden.size(1))
      .masked_fill_(hidden.unsqueeze(1), kUnseen);
  return scores.softmax(-1);
}

at::Tensor attend(const Inputs& in) {
  at::Tensor out = at::empty_like(in.q, at::MemoryFormat::Contiguous);
  for (int64_t i = 0; i < in.rows.runs.size(0); ++i) {
    const RowRun run = in.run(i);
    const at::Tensor q = grouped(in.q, run, in.kv_heads()) * in.scale();
    const at::Tensor weights = weights_of(in, run, q, gathered(in.context.k, in.own.k, run));
    const at::Tensor values = gathered(in.context.v, in.own.v, run);
    out.narrow(0, run.begin, run.rows).copy_(ungrouped(at::bmm(weights, values), run));
  }
  return out.view({in.q.size(0), -1});
}

// Adds what flows to a run's keys or values, [kv heads, keys, dimension], to the gradients.
void scatter(const at::Tensor& gradient, const RowRun& run, const at::Tensor& context,
             const at::Tensor& own) {
  const at::Tensor rows = gradient.transpose(0, 1);
  context.narrow(0, run.context, run.seen).add_(rows.narrow(0, 0, run.seen));
  if (!own.defined()) return;
  const int64_t count = rows.size(0) - run.seen;
  own.narrow(0, run.own, count).add_(rows.narrow(0, run.seen, count));
}

// Gradients of q, context.k, context.v, own.k, own.v, given that of the output.
variable_list attend_backward(const Inputs& in, const at::Tensor& output_gradient) {
  at::Tensor dq = at::empty_like(in.q, at::MemoryFormat::Contiguous);
  Keys context = {at::zeros_like(in.context.k, at::MemoryFormat::Contiguous),
                  at::zeros_like(in.context.v, at::MemoryFormat::Contiguous)};
  Keys own;
  if (in.rows.chained) {
    own = {at::zeros_like(in.own.k, at::MemoryFormat::Contiguous),
           at::zeros_like(in.own.v, at::MemoryFormat::Contiguous)};
  }
  const at::Tensor dout = output_gradient.contiguous().view(in.q.sizes());
  for (int64_t i = 0; i < in.rows.runs.size(0); ++i) {
    const RowRun run = in.run(i);
    const at::Tensor q = grouped(in.q, run, in.kv_heads()) * in.scale();
    const at::Tensor keys = gathered(in.context.k, in.own.k, run);
    const at::Tensor values = gathered(in.context.v, in.own.v, run);
    const at::Tensor weights = weights_of(in, run, q, keys);
    const at::Tensor out = grouped(dout, run, in.kv_heads());
    scatter(at::bmm(weights.transpose(1, 2), out), run, context.v, own.v);
    const at::Tensor scores = at::_softmax_backward_data(at::bmm(out, values.transpose(1, 2)),
                                                         weights, -1, weights.scalar_type());
    dq.narrow(0, run.begin, run.rows).copy_(ungrouped(at::bmm(scores, keys), run).mul_(in.scale()));
    scatter(at::bmm(scores.transpose(1, 2), q), run, context.k, own.k);
  }
  return {dq, context.k, context.v, own.k, own.v};
}

// Autograd wants tensors even for what is not there.
Keys own_of(const at::Tensor& k, const at::Tensor& v, const ElementRows& rows) {
  return rows.chained ? Keys{k, v} : Keys();
}

struct ElementAttention : torch::autograd::Function<ElementAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& context_k,
                            const at::Tensor& context_v, const at::Tensor& own_k,
                            const at::Tensor& own_v, const ElementRows& rows) {
    const NoAutocast as_given(c10::autocast_dispatch_keyset);
    ctx->save_for_backward({q, context_k, context_v, own_k, own_v});
    ctx->saved_data["anchors"] = rows.anchors;
    ctx->saved_data["begins"] = rows.begins;
    ctx->saved_data["ends"] = rows.ends;
    ctx->saved_data["runs"] = rows.runs;
    ctx->saved_data["chained"] = rows.chained;
    return attend({q, {context_k, context_v}, own_of(own_k, own_v, rows), rows});
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const at::NoGradGuard no_grad;
    const NoAutocast as_given(c10::autocast_dispatch_keyset);
    const variable_list saved = ctx->get_saved_variables();
    ElementRows rows;
    rows.anchors = ctx->saved_data["anchors"].toTensor();
    rows.begins = ctx->saved_data["begins"].toTensor();
    rows.ends = ctx->saved_data["ends"].toTensor();
    rows.runs = ctx->saved_data["runs"].toTensor();
    rows.chained = ctx->saved_data["chained"].toBool();
    variable_list out = attend_backward(
        {saved[0], {saved[1], saved[2]}, own_of(saved[3], saved[4], rows), rows}, gradients[0]);
    out.emplace_back();
    return out;
  }
};

}  // namespace

at::Tensor attend_elements(const at::Tensor& q, const Keys& context, const Keys& own,
                           const ElementRows& rows) {
  const auto same = [&q](const at::Tensor& x) { return x.to(q.scalar_type()); };
  if (rows.chained) {
    return ElementAttention::apply(q, same(context.k), same(context.v), same(own.k), same(own.v),
                                   rows);
  }
  const at::Tensor none = at::empty({0}, q.options().requires_grad(false));
  return ElementAttention::apply(q, same(context.k), same(context.v), none, none, rows);
}

}  // namespace aerie::train

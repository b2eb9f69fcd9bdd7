#include "train/nn/adamw.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <utility>

#include "train/nn/adamw_update.h"

namespace aerie::train {
namespace {

constexpr int64_t kAlignment = 16;     // floats
constexpr int64_t kPiece = 64 * 1024;  // what a thread takes at a time

}  // namespace

void update_floats(const AdamWUpdate& u, int64_t count, float* value, float* gradient, float* first,
                   float* second) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * u.factor;
    first[i] = u.beta1 * first[i] + (1.0F - u.beta1) * g;
    second[i] = u.beta2 * second[i] + (1.0F - u.beta2) * (g * g);
    const float root = std::sqrt(second[i]) * u.root_scale + u.eps;
    value[i] = u.keep * value[i] - u.size * first[i] / root;
    gradient[i] = 0.0F;
  }
}

void update_tensors(const AdamWUpdate& u, at::Tensor value, at::Tensor gradient, at::Tensor first,
                    at::Tensor second) {
  gradient.mul_(u.factor);
  first.mul_(u.beta1).add_(gradient, 1.0F - u.beta1);
  second.mul_(u.beta2).addcmul_(gradient, gradient, 1.0F - u.beta2);
  const at::Tensor root = second.sqrt().mul_(u.root_scale).add_(u.eps);
  value.mul_(u.keep).addcdiv_(first, root, -u.size);
  gradient.zero_();
}

AdamW::AdamW(const Parameters& parameters, const AdamWOptions& options) : options_(options) {
  const at::NoGradGuard no_grad;
  int64_t end = 0;
  for (const Parameter& parameter : parameters.list()) {
    spans_.push_back({end, parameter.value.numel(), parameter.rate_scale,
                      parameter.value.dim() > 1 ? options.weight_decay : 0.0});
    end += (parameter.value.numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  const at::TensorOptions kind = parameters.list().empty()
                                     ? at::TensorOptions(at::kFloat)
                                     : parameters.list().front().value.options();
  for (at::Tensor* flat : {&values_, &gradients_, &first_, &second_}) {
    *flat = at::zeros({end}, kind.requires_grad(false));
  }
  for (size_t i = 0; i < spans_.size(); ++i) {
    at::Tensor value = parameters.list()[i].value;
    const auto place = [&](const at::Tensor& flat) {
      return flat.narrow(0, spans_[i].begin, spans_[i].size).view(value.sizes());
    };
    place(values_).copy_(value);
    value.set_data(place(values_));
    value.mutable_grad() = place(gradients_);
  }
  merge_spans();
}

// Neighbours that are updated alike are updated at once, the zeros between them, too: a GPU would
// have dozens of launches else.
void AdamW::merge_spans() {
  std::vector<Span> merged;
  for (const Span& span : spans_) {
    if (merged.empty() || merged.back().rate_scale != span.rate_scale ||
        merged.back().decay != span.decay) {
      merged.push_back(span);
    } else {
      merged.back().size = span.begin + span.size - merged.back().begin;
    }
  }
  spans_ = std::move(merged);
}

void AdamW::step(int64_t step, double rate, double factor) {
  const at::NoGradGuard no_grad;
  const double t = static_cast<double>(step);
  for (const Span& span : spans_) {
    const double own_rate = rate * span.rate_scale;
    const AdamWUpdate update = {
        static_cast<float>(options_.beta1),
        static_cast<float>(options_.beta2),
        static_cast<float>(1.0 - own_rate * span.decay),
        static_cast<float>(own_rate / (1.0 - std::pow(options_.beta1, t))),
        static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options_.beta2, t))),
        static_cast<float>(options_.eps),
        static_cast<float>(factor),
    };
    const auto part = [&span](at::Tensor& flat) { return flat.narrow(0, span.begin, span.size); };
    if (!values_.is_cpu()) {
      update_tensors(update, part(values_), part(gradients_), part(first_), part(second_));
      continue;
    }
    const auto start = [&span](at::Tensor& flat) { return flat.data_ptr<float>() + span.begin; };
    float* const value = start(values_);
    float* const gradient = start(gradients_);
    float* const first = start(first_);
    float* const second = start(second_);
    at::parallel_for(0, span.size, kPiece, [&](int64_t begin, int64_t end) {
      update_floats(update, end - begin, value + begin, gradient + begin, first + begin,
                    second + begin);
    });
  }
}

}  // namespace aerie::train

#include "train/nn/output_loss.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "base/clones.h"
#include "train/nn/autocast.h"
#include "train/nn/loss_gradients.h"

namespace aerie::train {
namespace {

// Elsewhere than in memory: as many values as keep a GPU busy, of which there are a few copies in
// floats.
constexpr int64_t kDeviceValues = int64_t{96} << 20;
// Of gradients, which are kept for the product with x: the more rows it sums up, the less often all
// of the matrix's own gradients are gone through.
constexpr int64_t kKeptValues = int64_t{32} << 20;

constexpr int64_t kPiece = 64 * 1024;  // what a thread takes at a time

AERIE_CLONES void add_bfloats(const c10::BFloat16* values, int64_t count, float* sums) {
  for (int64_t i = 0; i < count; ++i) {
    sums[i] += std::bit_cast<float>(static_cast<uint32_t>(values[i].x) << 16);
  }
}

// LibTorch would make floats of all values first.
void add_values(const at::Tensor& values, at::Tensor& sum) {
  if (!sum.is_cpu() || values.scalar_type() != at::kBFloat16 || !values.is_contiguous() ||
      !sum.is_contiguous()) {
    sum.add_(values);
    return;
  }
  const auto* const from = values.data_ptr<c10::BFloat16>();
  auto* const to = sum.data_ptr<float>();
  at::parallel_for(0, sum.numel(), kPiece, [&](int64_t begin, int64_t end) {
    add_bfloats(from + begin, end - begin, to + begin);
  });
}

void add_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& sum) {
  if (a.scalar_type() == sum.scalar_type()) {
    sum.addmm_(a, b);
  } else {
    add_values(at::mm(a, b), sum);
  }
}

}  // namespace

OutputLoss::OutputLoss(const at::Tensor& output)
    : output_(output), matrix_(output.detach().to(product_type(output.device()))) {
  const int64_t tokens = matrix_.size(0);
  if (!matrix_.is_cpu()) at_once_ = std::max(kRowsAtOnce, kDeviceValues / tokens);
  const int64_t rows = std::max(at_once_, kKeptValues / tokens);
  kept_ = at::empty({rows, tokens}, matrix_.options());
  inputs_ = at::empty({rows, matrix_.size(1)}, matrix_.options());
}

OutputLoss::Result OutputLoss::run(Divergence kind, const at::Tensor& x, const WantedLogits& wanted,
                                   double scale) {
  const bool train = at::GradMode::is_enabled();
  const at::NoGradGuard no_grad;
  const int64_t rows = x.size(0);
  std::vector<at::Tensor> losses, likeliest_of, gradients;
  for (int64_t begin = 0; begin < rows; begin += at_once_) {
    const int64_t count = std::min(at_once_, rows - begin);
    if (used_ + count > kept_.size(0)) finish();
    at::Tensor part = kept_.narrow(0, used_, count);
    const at::Tensor input =
        inputs_.narrow(0, used_, count).copy_(x.detach().narrow(0, begin, count));
    at::mm_out(part, input, matrix_.t());
    likeliest_of.push_back(likeliest(part));
    const at::Tensor target = wanted.logits.index_select(0, wanted.places.narrow(0, begin, count));
    losses.push_back(
        divergence_to_gradients(kind, target.to(matrix_.scalar_type()), part, train ? scale : 0.0));
    if (!train) continue;
    gradients.push_back(at::mm(part, matrix_));
    used_ += count;
  }
  return {at::cat(losses, 0), at::cat(likeliest_of, 0),
          train ? at::cat(gradients, 0).to(at::kFloat) : at::Tensor()};
}

void OutputLoss::finish() {
  if (used_ == 0) return;
  const at::NoGradGuard no_grad;
  at::Tensor& sum = output_.mutable_grad();
  if (!sum.defined()) sum = at::zeros_like(output_.detach());
  add_product(kept_.narrow(0, 0, used_).t(), inputs_.narrow(0, 0, used_), sum);
  used_ = 0;
}

}  // namespace aerie::train

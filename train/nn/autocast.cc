#include "train/nn/autocast.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

namespace aerie::train {
namespace {

void switch_to(const at::Device& device, bool on) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  at::autocast::set_autocast_dtype(device.type(), at::kBFloat16);
  at::autocast::set_autocast_enabled(device.type(), on);
#else
  if (device.is_cpu()) {
    at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
    at::autocast::set_cpu_enabled(on);
  } else {
    at::autocast::set_autocast_gpu_dtype(at::kBFloat16);
    at::autocast::set_enabled(on);
  }
#endif
}

bool is_on(const at::Device& device) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  return at::autocast::is_autocast_enabled(device.type());
#else
  return device.is_cpu() ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
#endif
}

}  // namespace

at::ScalarType product_type(const at::Device& device) {
  return is_on(device) ? at::kBFloat16 : at::kFloat;
}

bool adds_bfloats_exactly(const at::Device& device) {
  constexpr int64_t kSize = 512;  // of ones, where sums in BF16 stay at 256
  const at::NoGradGuard no_grad;
  const at::Tensor ones = at::ones({kSize, kSize}, at::TensorOptions(device).dtype(at::kBFloat16));
  return at::mm(ones, ones).eq(kSize).all().item<bool>();
}

Autocast::Autocast(const at::Device& device, bool on) : device_(device), on_(on) {
  if (on_) switch_to(device_, true);
}

Autocast::~Autocast() {
  if (!on_) return;
  // Copies of parameters in 16 bits are kept while it lives, and are stale after the next step.
  at::autocast::clear_cache();
  switch_to(device_, false);
}

}  // namespace aerie::train

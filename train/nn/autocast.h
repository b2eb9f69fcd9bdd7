// Products in 16 bits where a device gains from them; parameters, gradients and sums stay floats.
#pragma once

#include <ATen/ATen.h>

namespace aerie::train {

// BF16 as long as it lives, in this thread, if `on`.
class Autocast {
 public:
  Autocast(const at::Device& device, bool on);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::Device device_;
  bool on_;
};

// Of products on the device, as things are in this thread: BF16 under an Autocast that is on, else
// float.
at::ScalarType product_type(const at::Device& device);

// Whether a product of BF16 adds in floats there. On x86-64 without AVX-512 LibTorch adds in BF16,
// where a sum of a thousand is wrong by a twentieth, and takes twenty times as long as with floats.
bool adds_bfloats_exactly(const at::Device& device);

}  // namespace aerie::train

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

}  // namespace aerie::train

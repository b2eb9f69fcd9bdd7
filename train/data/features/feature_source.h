// What the target's layers hold for the tokens of a sample.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "engine/samples/sample.h"

namespace aerie::train {

// Taps of samples, from the store or by running the model. One thread at a time.
class FeatureSource {
 public:
  virtual ~FeatureSource() = default;

  // By the layer that the stream enters; `layers` is the stream behind the last one.
  virtual std::span<const int32_t> tap_layers() const = 0;
  virtual int hidden() const = 0;
  // Whether it has those of the sample; one that computes them has all.
  virtual bool has(const Sample& /*sample*/) const { return true; }

  // `out` [tokens][taps][hidden], all of the sample's tokens.
  virtual Status read(const Sample& sample, std::span<float> out) = 0;
  // The same as bfloat16: what is stored is no more.
  virtual Status read_bfloats(const Sample& sample, std::span<uint16_t> out);
};

}  // namespace aerie::train

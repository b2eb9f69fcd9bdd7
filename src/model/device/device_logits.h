// Logits of a pass that stay in a device's memory until somebody asks for a row.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/errors.h"
#include "base/status.h"
#include "core/forward_batch.h"
#include "kernels/device/device.h"
#include "model/device/device_memory.h"

namespace aerie {

// Brings rows of logits over when they are asked for, and keeps those that it has. Where many rows
// were asked for in the pass before, as of many texts that are drawn, it brings all of them with
// what else a pass gives: a wait for each row would take longer than a pass.
class DeviceLogits final : public LogitSource {
 public:
  explicit DeviceLogits(device::Device& device) : device_(device) {}

  Status allocate(int rows, int width) {
    width_ = static_cast<size_t>(width);
    AERIE_ASSIGN_OR_RETURN(
        host_, DeviceMemory::allocate(device_, static_cast<size_t>(rows) * width_ * sizeof(float),
                                      "logits", DeviceMemory::Of::kHost));
    fetched_.resize(static_cast<size_t>(rows));
    asked_for_.resize(static_cast<size_t>(rows));
    return {};
  }
  // Of a new pass, whose logits lie there, those of `rows` rows. Before the wait for the pass.
  void start(const float* logits, size_t rows) {
    const bool all = asked_ >= kMany && 4 * asked_ >= rows_;
    logits_ = logits;
    rows_ = rows;
    asked_ = 0;
    fetched_.assign(fetched_.size(), all);
    asked_for_.assign(fetched_.size(), false);
    if (all) device_.copy_out(host_.as<float>(), logits_, rows * width_ * sizeof(float));
    status_ = {};
  }

  std::span<const float> fetch(int i) override {
    const auto at = static_cast<size_t>(i) * width_;
    float* to = host_.as<float>() + at;
    if (!asked_for_[static_cast<size_t>(i)]) ++asked_;
    asked_for_[static_cast<size_t>(i)] = true;
    if (!fetched_[static_cast<size_t>(i)]) {
      device_.copy_out(to, logits_ + at, width_ * sizeof(float));
      if (!device_.wait()) status_ = internal_error("{}", device_.error());
      fetched_[static_cast<size_t>(i)] = true;
    }
    return {to, width_};
  }
  Status status() const override { return status_; }

 private:
  static constexpr size_t kMany = 4;

  device::Device& device_;
  size_t width_ = 0;
  DeviceMemory host_;
  const float* logits_ = nullptr;
  std::vector<bool> fetched_, asked_for_;  // of rows
  size_t rows_ = 0, asked_ = 0;            // of the pass
  Status status_;
};

}  // namespace aerie

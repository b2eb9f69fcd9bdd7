// The best few tokens of rows of logits in a device's memory: what is asked for, and what came of
// it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/best_token.h"
#include "kernels/device/device.h"
#include "model/device/device_memory.h"

namespace aerie {

class DeviceTop {
 public:
  // For `rows` rows, each with `each` rows of `vocab` logits, one behind the other; k = 0: nothing
  // is looked for.
  Status allocate(device::Device& device, int64_t rows, int each, int vocab, int k) {
    device_ = &device;
    each_ = each;
    vocab_ = vocab;
    k_ = std::min(k, vocab);
    if (k_ <= 0) return {};
    parts_of_all_ = rows * each * device::kBestParts;
    AERIE_ASSIGN_OR_RETURN(
        parts_, DeviceMemory::allocate(device, static_cast<size_t>(bytes(rows, each, k_)),
                                       "finding the best tokens"));
    const auto all = static_cast<size_t>(rows * each);
    ids_.resize(all * static_cast<size_t>(k_));
    logits_.resize(ids_.size());
    log_sums_.resize(all);
    return {};
  }
  // Device memory of that.
  static int64_t bytes(int64_t rows, int each, int k) {
    return rows * each * (int64_t{device::kBestParts} * (2 * k + 1) + 1) * 4;
  }

  // Floats of a row of what is found.
  int64_t width() const { return k_ <= 0 ? 0 : int64_t{each_} * (2 * k_ + 1); }

  // Puts it on the stream.
  void find(const int32_t* rows, int most_rows, const float* logits, float* out,
            int64_t out_stride) const {
    if (k_ <= 0 || most_rows <= 0) return;
    device::Top args;
    args.rows = rows;
    args.most_rows = most_rows;
    args.each = each_;
    args.logits = logits;
    args.stride = int64_t{vocab_} * each_;
    args.apart = vocab_;
    args.n = vocab_;
    args.k = k_;
    args.part_values = parts_.as<float>();
    args.part_ids = parts_.as<int32_t>() + parts_of_all_ * k_;
    args.part_sums = parts_.as<float>() + 2 * parts_of_all_ * k_;
    args.arrived = parts_.as<unsigned>() + parts_of_all_ * (2 * k_ + 1);
    args.out = out;
    args.out_stride = out_stride;
    device_->top(args);
  }

  // Of what came over of these rows; it holds until the next call.
  TopTokens read(const float* found, int64_t stride, size_t rows) {
    if (k_ <= 0) return {};
    const auto k = static_cast<size_t>(k_), each = static_cast<size_t>(each_);
    for (size_t row = 0; row < rows; ++row) {
      const float* from = found + static_cast<int64_t>(row) * stride;
      for (size_t i = row * each; i < (row + 1) * each; ++i, from += 2 * k + 1) {
        std::copy_n(reinterpret_cast<const int32_t*>(from), k, ids_.data() + i * k);
        std::copy_n(from + k, k, logits_.data() + i * k);
        log_sums_[i] = static_cast<float>(double{from[k]} + std::log(double{from[2 * k]}));
      }
    }
    const size_t all = rows * each;
    return {k_, std::span<const int32_t>(ids_).first(all * k),
            std::span<const float>(logits_).first(all * k),
            std::span<const float>(log_sums_).first(all)};
  }

 private:
  device::Device* device_ = nullptr;
  int each_ = 1, vocab_ = 0, k_ = 0;
  int64_t parts_of_all_ = 0;
  DeviceMemory parts_;
  std::vector<int32_t> ids_;
  std::vector<float> logits_, log_sums_;
};

}  // namespace aerie

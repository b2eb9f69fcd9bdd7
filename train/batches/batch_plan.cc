#include "train/batches/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/philox.h"

namespace aerie::train {
namespace {

// What a number is drawn for: streams of different uses do not meet.
enum class Use : uint32_t { kOrder, kBatch, kPart };

uint64_t draw(uint64_t seed, Use use, uint64_t a, uint32_t b) {
  const PhiloxBlock block = philox4x32(
      {static_cast<uint32_t>(a), static_cast<uint32_t>(a >> 32), b, static_cast<uint32_t>(use)},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{block[0]} << 32 | block[1];
}

std::vector<BatchSamples> pack(std::span<const int32_t> order, std::span<const int64_t> lengths,
                               const PlanOptions& options) {
  std::vector<BatchSamples> batches;
  int64_t rows = options.batch_tokens;  // full: the first sample begins a batch
  for (const int32_t sample : order) {
    const int64_t length = std::min(lengths[static_cast<size_t>(sample)], options.max_length);
    if (batches.empty() || rows + length > options.batch_tokens) {
      batches.emplace_back();
      rows = 0;
    }
    batches.back().push_back(sample);
    rows += length;
  }
  return batches;
}

std::vector<int32_t> in_order(size_t count) {
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Whether a sample has a part in an epoch; the last one always has.
bool takes_part(size_t sample, size_t count, const PlanOptions& options, int64_t epoch) {
  if (options.oldest >= 1.0 || sample + 1 >= count) return true;
  const double age = 1.0 - static_cast<double>(sample + 1) / static_cast<double>(count);
  const uint64_t drawn =
      draw(options.seed, Use::kPart, static_cast<uint64_t>(epoch), static_cast<uint32_t>(sample));
  const auto uniform = static_cast<double>(drawn >> 11) * 0x1p-53;
  return uniform < 1.0 - age * (1.0 - options.oldest);
}

}  // namespace

std::vector<BatchSamples> plan_epoch(std::span<const int64_t> lengths, const PlanOptions& options,
                                     int64_t epoch) {
  std::vector<int32_t> order = in_order(lengths.size());
  std::vector<uint64_t> keys(order.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] =
        draw(options.seed, Use::kOrder, static_cast<uint64_t>(epoch), static_cast<uint32_t>(i));
  }
  std::erase_if(order, [&](int32_t sample) {
    return !takes_part(static_cast<size_t>(sample), lengths.size(), options, epoch);
  });
  std::sort(order.begin(), order.end(), [&keys](int32_t a, int32_t b) {
    return std::pair(keys[static_cast<size_t>(a)], a) < std::pair(keys[static_cast<size_t>(b)], b);
  });
  return pack(order, lengths, options);
}

std::vector<BatchSamples> plan_in_order(std::span<const int64_t> lengths,
                                        const PlanOptions& options) {
  return pack(in_order(lengths.size()), lengths, options);
}

uint64_t batch_seed(uint64_t seed, int64_t step, int64_t batch) {
  return draw(seed, Use::kBatch, static_cast<uint64_t>(step), static_cast<uint32_t>(batch));
}

}  // namespace aerie::train

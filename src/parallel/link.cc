#include "parallel/link.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/clock.h"

namespace aerie {
namespace {

constexpr size_t kFew = 64, kMany = size_t{1} << 20;  // bytes of a rank
constexpr int kShortRuns = 21, kLongRuns = 9;
// Of one measurement, which is their mean: where one rank begins as the other's part comes, every
// second gather takes no time and the rest twice as long.
constexpr int kShortRun = 10, kLongRun = 4;

// Of a gather, in a median run.
double median_seconds(Group& group, size_t bytes, int runs, int length) {
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<std::byte> memory(ranks * bytes);
  std::vector<std::span<std::byte>> parts;
  for (size_t r = 0; r < ranks; ++r) parts.push_back(std::span(memory).subspan(r * bytes, bytes));
  std::vector<double> seconds;
  for (int i = 0; i < runs; ++i) {
    const SteadyTime start = steady_now();
    for (int k = 0; k < length; ++k) group.all_gather(parts);
    seconds.push_back(seconds_since(start) / length);
  }
  std::ranges::nth_element(seconds, seconds.begin() + runs / 2);
  return seconds[static_cast<size_t>(runs) / 2];
}

}  // namespace

Link measure_link(Group& group) {
  Link link;
  link.latency = median_seconds(group, kFew, kShortRuns, kShortRun);
  const double seconds =
      std::max(1e-9, median_seconds(group, kMany, kLongRuns, kLongRun) - link.latency);
  link.bandwidth = static_cast<double>(kMany) * (group.size() - 1) / seconds;
  return link;
}

double predicted_seconds(const RankedPass& pass, int ranks, const Link& link) {
  const double computed = pass.alone + pass.split * pass.ranks / ranks;
  if (ranks == 1) return computed;
  const double given = static_cast<double>(pass.bytes) * (ranks - 1) / ranks;
  return computed + static_cast<double>(pass.messages) * link.latency + given / link.bandwidth;
}

}  // namespace aerie

#include "parallel/link.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/clock.h"

namespace aerie {
namespace {

constexpr size_t kFew = 64, kMany = size_t{4} << 20;  // bytes of a rank
constexpr int kShortTimes = 201, kLongTimes = 9;

double median_seconds(Group& group, size_t bytes, int times) {
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<std::byte> memory(ranks * bytes);
  std::vector<std::span<std::byte>> parts;
  for (size_t r = 0; r < ranks; ++r) parts.push_back(std::span(memory).subspan(r * bytes, bytes));
  std::vector<double> seconds;
  for (int i = 0; i < times; ++i) {
    const SteadyTime start = steady_now();
    group.all_gather(parts);
    seconds.push_back(seconds_since(start));
  }
  std::ranges::nth_element(seconds, seconds.begin() + times / 2);
  return seconds[static_cast<size_t>(times) / 2];
}

}  // namespace

Link measure_link(Group& group) {
  Link link;
  link.latency = median_seconds(group, kFew, kShortTimes);
  const double seconds = std::max(1e-9, median_seconds(group, kMany, kLongTimes) - link.latency);
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

#include "model/device/pass_graphs.h"

#include <algorithm>
#include <bit>

namespace aerie {
namespace {

int rounded_up(int n, int limit) {
  if (n == 0) return 0;
  return std::min(limit, static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))));
}

}  // namespace

void PassShape::round_up(const PassLimits& limits) {
  sizes.rows = rounded_up(sizes.rows, limits.rows);
  sizes.tiles = rounded_up(sizes.tiles, limits.rows);
  sizes.wanted = rounded_up(sizes.wanted, limits.wanted);
  sizes.stated = rounded_up(sizes.stated, limits.wanted);
  sizes.tapped = rounded_up(sizes.tapped, limits.rows);
  sizes.chunks = rounded_up(sizes.chunks, limits.positions / device::kChunk + 1);
}

void PassGraphs::run(const PassShape& shape, int cache, const std::function<void()>& launch) {
  const auto found = graphs_.find({shape, cache});
  if (found != graphs_.end()) return device_.launch(found->second);
  if (graphs_.size() == kMost) clear();
  device_.begin_graph();
  launch();
  device::Graph* graph = device_.end_graph();
  if (graph == nullptr) {
    // Without memory for one more, work goes without.
    if (device_.error()[0] == '\0') {
      clear();
      launch();
    }
    return;
  }
  graphs_.insert({{shape, cache}, graph});
  device_.launch(graph);
}

void PassGraphs::clear() {
  if (graphs_.empty()) return;
  device_.wait();
  for (auto& [key, graph] : graphs_) device_.destroy(graph);
  graphs_.clear();
}

}  // namespace aerie

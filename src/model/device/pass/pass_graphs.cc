#include "model/device/pass/pass_graphs.h"

namespace aerie {

void PassShape::round_up(const PassLimits& limits) {
  sizes.rows = graph_rows(sizes.rows, limits.rows);
  sizes.tiles = graph_rows(sizes.tiles, limits.rows);
  sizes.wanted = graph_rows(sizes.wanted, limits.wanted);
  sizes.stated = graph_rows(sizes.stated, limits.wanted);
  sizes.tapped = graph_rows(sizes.tapped, limits.rows);
  sizes.state_sequences = graph_rows(sizes.state_sequences, limits.rows);
  sizes.chunks = graph_rows(sizes.chunks, limits.positions / device::kChunk + 1);
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

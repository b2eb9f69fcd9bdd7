#include "model/device/pass/pass_graphs.h"

namespace aerie {

void PassSizes::round_up(const PassLimits& limits) {
  rows = graph_rows(rows, limits.rows);
  tiles = graph_rows(tiles, limits.rows);
  wanted = graph_rows(wanted, limits.wanted);
  stated = graph_rows(stated, limits.wanted);
  tapped = graph_rows(tapped, limits.rows);
  state_sequences = graph_rows(state_sequences, limits.rows);
  chunks = graph_rows(chunks, limits.positions / device::kChunk + 1);
}

void PassShape::round_up(const PassLimits& limits) {
  sizes.round_up(limits);
  for (PassSizes& level : levels) level.round_up(limits);
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

#include "decode/early_exits.h"

#include <algorithm>
#include <cassert>

namespace aerie {

EarlyExits::EarlyExits(Model& model, KvCache& cache, int max_rows, int max_nodes)
    : model_(model),
      cache_(cache),
      max_rows_(static_cast<size_t>(max_rows)),
      max_nodes_(static_cast<size_t>(max_nodes)) {}

void EarlyExits::start(std::span<Sequence* const> sequences) {
  open_ = sequences.size();
  if (runs_.size() < open_) runs_.resize(open_);
  for (size_t i = 0; i < open_; ++i) {
    Run& run = runs_[i];
    run.id = sequences[i]->id;
    run.cache = sequences[i]->cache;
    run.tokens.clear();
    run.exits.clear();
  }
}

EarlyExits::Run& EarlyExits::find(SequenceId id) {
  const auto end = runs_.begin() + static_cast<std::ptrdiff_t>(open_);
  const auto found = std::find_if(runs_.begin(), end, [&](const Run& run) { return run.id == id; });
  assert(found != end);
  return *found;
}

bool EarlyExits::reserve(SequenceId id, int rows) {
  return cache_.reserve(find(id).cache, rows).ok();
}

ForwardOutputs EarlyExits::run_first_layers(int end_layer, std::span<const ExitRow> rows) {
  const auto hidden = static_cast<size_t>(config().hidden);
  batch_.clear();
  batch_.end_layer = end_layer;
  batch_.tap_layers.push_back(end_layer);
  for (const ExitRow& row : rows) {
    Run& run = find(row.id);
    const auto depth = static_cast<size_t>(row.depth);
    assert(depth <= run.tokens.size() && (depth == 0 || run.end_layer == end_layer));
    // Memory for the longest chain, once there is any.
    run.tokens.reserve(max_nodes_ + 1);
    run.exits.reserve((max_nodes_ + 1) * hidden);
    run.end_layer = end_layer;
    run.tokens.resize(depth);
    run.tokens.push_back(row.token);
    // The chain so far lies in place, so that it looks like committed entries.
    const int position = cache_.committed(run.cache) + row.depth;
    BatchRow out;
    out.sequence = static_cast<int32_t>(batch_.sequences.size());
    out.token = row.token;
    out.position = position;
    out.slot = cache_.slot(run.cache, row.depth);
    out.wants_logits = out.wants_taps = true;
    batch_.sequences.push_back({cache_.pages(run.cache), position, run.cache});
    batch_.rows.push_back(out);
  }
  const ForwardOutputs outputs = model_.forward(batch_, cache_);
  for (size_t i = 0; i < rows.size(); ++i) {
    Run& run = find(rows[i].id);
    if (!outputs.status.ok()) {
      run.tokens.clear();
      continue;
    }
    run.exits.resize(static_cast<size_t>(rows[i].depth) * hidden);
    const std::span<const float> exit = outputs.taps_of(static_cast<int>(i));
    run.exits.insert(run.exits.end(), exit.begin(), exit.end());
  }
  return outputs;
}

// The layer from which all rows of the pass can go on; 0: there is none.
int EarlyExits::exit_of(const ForwardBatch& batch) const {
  for (size_t i = 0; i < open_; ++i) {
    if (runs_[i].tokens.empty()) continue;
    const int exit = runs_[i].end_layer;
    // What enters an earlier layer can only be tapped if that layer is run.
    const auto earlier = [&](int32_t layer) { return layer < exit; };
    return std::ranges::any_of(batch.tap_layers, earlier) ? 0 : exit;
  }
  return 0;
}

// How many rows, the root's first, are as they were run.
int EarlyExits::usable_rows(const Run& run, const TokenTree& tree, int32_t root) {
  const auto length = static_cast<int>(run.tokens.size());
  if (length == 0 || run.tokens[0] != root) return 0;
  int rows = 1;
  for (; rows < length && rows <= tree.size(); ++rows) {
    const TokenTree::Node& node = tree.nodes[static_cast<size_t>(rows - 1)];
    if (node.parent != rows - 2 || node.token != run.tokens[static_cast<size_t>(rows)]) break;
  }
  return rows;
}

Status EarlyExits::go_on(ForwardBatch& batch, std::span<const TokenTree> trees) {
  const int exit = exit_of(batch);
  if (exit == 0) return {};
  const auto hidden = static_cast<size_t>(config().hidden);
  hidden_.reserve(max_rows_ * hidden);
  hidden_.resize(batch.rows.size() * hidden);
  rest_at_.reserve(max_rows_);
  rest_at_.assign(batch.rows.size(), 0);
  size_t first = 0;
  for (size_t i = 0; i < open_; ++i) {
    const Run& run = runs_[i];
    const int known =
        run.end_layer == exit ? usable_rows(run, trees[i], batch.rows[first].token) : 0;
    std::copy_n(run.exits.begin(), static_cast<size_t>(known) * hidden,
                hidden_.begin() + static_cast<std::ptrdiff_t>(first * hidden));
    std::fill_n(rest_at_.begin() + static_cast<std::ptrdiff_t>(first), known, -1);
    first += 1 + trees[i].nodes.size();
  }
  AERIE_RETURN_IF_ERROR(complete(batch, exit));
  batch.first_layer = exit;
  batch.hidden = hidden_;
  return {};
}

// Runs the first layers of the rows that rest_at_ does not say were run.
Status EarlyExits::complete(const ForwardBatch& batch, int exit) {
  const auto hidden = static_cast<size_t>(config().hidden);
  batch_.clear();
  batch_.end_layer = exit;
  batch_.tap_layers.push_back(exit);
  rest_.reserve(max_rows_);
  rest_.clear();
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    if (rest_at_[r] < 0) continue;
    BatchRow row = batch.rows[r];
    row.wants_logits = false;
    row.wants_taps = true;
    const int32_t above = row.parent < 0 ? -1 : rest_at_[static_cast<size_t>(row.parent)];
    if (above >= 0) {
      row.parent = above;
      row.sequence = batch_.rows[static_cast<size_t>(above)].sequence;
    } else {
      // Behind rows that were run and lie in place, all the way to the prefix.
      const auto& sequence = batch.sequences[static_cast<size_t>(row.sequence)];
      row.parent = -1;
      row.sequence = static_cast<int32_t>(batch_.sequences.size());
      batch_.sequences.push_back({sequence.pages, row.position, sequence.id});
    }
    rest_at_[r] = batch_.size();
    rest_.push_back(static_cast<int32_t>(r));
    batch_.rows.push_back(row);
  }
  if (rest_.empty()) return {};
  const ForwardOutputs outputs = model_.forward(batch_, cache_);
  AERIE_RETURN_IF_ERROR(outputs.status);
  for (size_t i = 0; i < rest_.size(); ++i) {
    const auto at = static_cast<size_t>(rest_[i]) * hidden;
    std::ranges::copy(outputs.taps_of(static_cast<int>(i)),
                      hidden_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return {};
}

}  // namespace aerie

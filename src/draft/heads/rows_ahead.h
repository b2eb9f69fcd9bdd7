// Rows of nodes that a head computed with the pass of the roots, before a draft asked for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "draft/heads/feature_head.h"

namespace aerie {

// Rows of logits from a row of another source on.
class RowsOfSource final : public LogitSource {
 public:
  void start(LogitSource* source, int first) {
    source_ = source;
    first_ = first;
  }
  std::span<const float> fetch(int row) override { return source_->fetch(first_ + row); }
  Status status() const override { return source_->status(); }

 private:
  LogitSource* source_ = nullptr;
  int first_ = 0;
};

// Of the last pass with levels, until clear(). Each sequence has a place, as in a DraftNetwork.
class RowsAhead {
 public:
  void reserve(size_t levels, size_t places) {
    levels_.resize(levels + 1);
    for (Level& level : levels_) level.places.reserve(places);
    nodes_.assign(places, -1);
    asked_.reserve(places);
  }
  void clear() {
    count_ = 0;
    asked_.clear();
  }

  // The places whose rows a level has, in their order; 0: the roots'. To be filled before start().
  std::vector<int>& places(size_t level) { return levels_[level].places; }
  // The outputs, which must stay until clear(), and what logits stand for.
  void start(const HeadOutputs& outputs, std::span<const int32_t> target_ids) {
    clear();
    if (outputs.level_rows.empty()) return;
    outputs_ = outputs;
    target_ids_ = target_ids;
    levels_[0].first = 0;
    for (size_t i = 0; i < outputs.level_rows.size(); ++i) {
      levels_[i + 1].first = outputs.level_rows[i];
    }
    count_ = outputs.level_rows.size() + 1;
    for (const int place : levels_[0].places) nodes_[static_cast<size_t>(place)] = -1;
  }

  // A draft asks for a node's row.
  void ask(int place, int32_t node, int32_t parent, int32_t token, int depth) {
    if (count_ == 0) return;
    const int row = find(place, parent, token, static_cast<size_t>(depth));
    asked_.push_back(row);
    if (row >= 0) nodes_[static_cast<size_t>(place)] = node;
  }
  // The first of the rows that were asked for since the last call, if they are there one after the
  // other; -1: they have to be computed.
  int take() {
    bool there = !asked_.empty();
    for (size_t i = 0; i < asked_.size() && there; ++i) {
      there = asked_[i] >= 0 && asked_[i] == asked_[0] + static_cast<int32_t>(i);
    }
    const int first = there ? asked_[0] : -1;
    asked_.clear();
    return first;
  }
  bool is_there() const { return count_ > 0; }
  // So many rows of the outputs, which are there.
  HeadOutputs rows(int first, int count) {
    HeadOutputs out;
    const auto from = static_cast<size_t>(first), n = static_cast<size_t>(count);
    const size_t handed = outputs_.hidden.size() / outputs_.top.log_sums.size();
    const auto k = static_cast<size_t>(outputs_.top.k);
    out.hidden = outputs_.hidden.subspan(from * handed, n * handed);
    out.top = {outputs_.top.k, outputs_.top.ids.subspan(from * k, n * k),
               outputs_.top.logits.subspan(from * k, n * k),
               outputs_.top.log_sums.subspan(from, n)};
    source_.start(outputs_.source, first);
    out.source = &source_;
    return out;
  }

 private:
  struct Level {
    std::vector<int> places;
    int32_t first = 0;  // row of outputs_
  };

  int row_of(int place, size_t level) const {
    const std::vector<int>& places = levels_[level].places;
    const auto found = std::ranges::find(places, place);
    if (found == places.end()) return -1;
    return levels_[level].first + static_cast<int32_t>(found - places.begin());
  }
  // -1: it was computed behind another node, with another token or not at all.
  int find(int place, int32_t parent, int32_t token, size_t depth) const {
    if (depth >= count_ || parent != nodes_[static_cast<size_t>(place)]) return -1;
    const int above = row_of(place, depth - 1);
    if (above < 0) return -1;
    const auto best = static_cast<size_t>(
        outputs_.top.ids[static_cast<size_t>(above) * static_cast<size_t>(outputs_.top.k)]);
    const int32_t assumed = target_ids_.empty() ? static_cast<int32_t>(best) : target_ids_[best];
    return token == assumed ? row_of(place, depth) : -1;
  }

  std::vector<Level> levels_;
  size_t count_ = 0;  // of them, the roots' included; 0: there are no rows
  HeadOutputs outputs_;
  std::span<const int32_t> target_ids_;
  std::vector<int32_t> nodes_;  // [place]: the last one whose row was there; -1: the root
  std::vector<int32_t> asked_;
  RowsOfSource source_;
};

}  // namespace aerie

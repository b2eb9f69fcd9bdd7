#include "kv/slot_moves.h"

#include <algorithm>
#include <cassert>

namespace aerie {

void SlotMoves::add(int32_t from, int32_t to) {
  assert(from >= 0 && to >= 0 && static_cast<size_t>(std::max(from, to)) < slots_);
  moves_.push_back({from, to});
  if (moves_.size() < look_at_) return;
  drop_unread();
  look_at_ = std::max(kMany, 2 * moves_.size());
}

void SlotMoves::clear() {
  moves_.clear();
  look_at_ = kMany;
}

// From the last to the first: what a later one overwrites and none in between reads is left out.
void SlotMoves::drop_unread() {
  overwritten_.assign(slots_, false);
  auto kept = moves_.end();
  for (auto move = moves_.end(); move != moves_.begin();) {
    --move;
    const auto from = static_cast<size_t>(move->from), to = static_cast<size_t>(move->to);
    if (from == to || overwritten_[to]) continue;
    overwritten_[to] = true;
    overwritten_[from] = false;
    *--kept = *move;
  }
  moves_.erase(moves_.begin(), kept);
}

}  // namespace aerie

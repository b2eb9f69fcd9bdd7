#include "kv/state_moves.h"

#include <algorithm>

namespace aerie {

void StateMoves::add(const StateMove& move) {
  moves_.push_back(move);
  if (moves_.size() < look_at_) return;
  drop_unread();
  look_at_ = std::max(kMany, 2 * moves_.size());
}

void StateMoves::clear() {
  moves_.clear();
  look_at_ = kMany;
}

// From the last to the first: what a later one overwrites and none in between reads is left out.
void StateMoves::drop_unread() {
  overwritten_.assign(planes_ * slots_, false);
  const auto at = [&](size_t plane, int32_t slot) {
    return overwritten_[plane * slots_ + static_cast<size_t>(slot)];
  };
  const auto is_overwritten = [&](const StateMove& move) {
    if (move.kind != StateMove::Kind::kCopy) {
      return static_cast<bool>(at(static_cast<size_t>(move.plane), move.to));
    }
    for (size_t plane = 0; plane < planes_; ++plane) {
      if (!at(plane, move.to)) return false;
    }
    return true;
  };
  auto kept = moves_.end();
  for (auto move = moves_.end(); move != moves_.begin();) {
    --move;
    if (is_overwritten(*move)) continue;
    if (move->kind == StateMove::Kind::kClear) {
      at(static_cast<size_t>(move->plane), move->to) = true;
    } else if (move->kind == StateMove::Kind::kCopy) {
      for (size_t plane = 0; plane < planes_; ++plane) {
        at(plane, move->to) = true;
        at(plane, move->from) = false;
      }
    }
    *--kept = *move;
  }
  moves_.erase(moves_.begin(), kept);
}

}  // namespace aerie

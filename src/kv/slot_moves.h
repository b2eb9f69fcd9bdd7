// Entries of a cache that are to be copied, written down for whoever holds its planes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace aerie {

// The entry of slot `from` is copied to slot `to`, in every layer that has a plane.
struct SlotMove {
  int32_t from = 0;
  int32_t to = 0;
};

// Grows with the moves that are not made, but for those that make no difference: of kMany and more
// they are looked for now and then, at a cost that does not grow with each move. Not thread-safe.
class SlotMoves {
 public:
  static constexpr size_t kMany = size_t{1} << 16;

  // Of slots 0 .. slots - 1.
  explicit SlotMoves(int64_t slots) : slots_(static_cast<size_t>(slots)) {}

  void add(int32_t from, int32_t to);

  // To be made one after the other: any may read what one before it wrote.
  std::span<const SlotMove> list() const { return moves_; }
  void clear();

 private:
  void drop_unread();

  size_t slots_;
  std::vector<SlotMove> moves_;
  size_t look_at_ = kMany;         // as many as will be looked through
  std::vector<bool> overwritten_;  // [slot], scratch
};

}  // namespace aerie

// What is to be done to the states of a cache besides what passes do, written down for whoever
// holds them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace aerie {

struct StateMove {
  enum class Kind : int32_t {
    kCopy,   // the state of slot `from` is copied to slot `to`, in every plane
    kClear,  // that of `to` becomes zeros
    kApply,  // record `from` is brought into that of `to` (kernels::apply_record())
  };
  Kind kind = Kind::kCopy;
  int32_t plane = 0;  // of kClear and kApply, of all that keep states
  int32_t from = 0;
  int32_t to = 0;
};

// Grows with the moves that are not made, but for those that make no difference: of kMany and more
// they are looked for now and then. Not thread-safe.
class StateMoves {
 public:
  static constexpr size_t kMany = size_t{1} << 14;

  StateMoves(int planes, int slots)
      : planes_(static_cast<size_t>(planes)), slots_(static_cast<size_t>(slots)) {}

  void add(const StateMove& move);

  // To be made one after the other: any may read what one before it wrote.
  std::span<const StateMove> list() const { return moves_; }
  void clear();

 private:
  void drop_unread();

  size_t planes_, slots_;
  std::vector<StateMove> moves_;
  size_t look_at_ = kMany;         // as many as will be looked through
  std::vector<bool> overwritten_;  // [plane][slot], scratch
};

}  // namespace aerie

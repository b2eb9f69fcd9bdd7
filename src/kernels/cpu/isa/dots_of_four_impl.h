// Sums of products of weights' bytes with activations' where one instruction multiplies and adds
// four of them.
#pragma once

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

// One sum for each lane, of words of weights whose bytes are at most kLargest. Where few others are
// under way, words take turns with two sums, so that none waits for the one before.
template <int kLargest, bool kFew>
struct Dots {
  Ints sum[2];
};

template <int kLargest, bool kFew>
AERIE_INLINE void begin(Dots<kLargest, kFew>& dots, Ints start) {
  dots.sum[0] = start;
  if constexpr (kFew) dots.sum[1] = zero_ints();
}
// kAdded: how many have been added.
template <int kAdded, int kLargest, bool kFew>
AERIE_INLINE void add_word(Dots<kLargest, kFew>& dots, Bytes w, const int8_t* x) {
  Ints& sum = dots.sum[kFew ? kAdded % 2 : 0];
  sum = dot4<(kLargest > 127)>(sum, w, x);
}
template <int kAdded, int kLargest, bool kFew>
AERIE_INLINE Ints total(const Dots<kLargest, kFew>& dots) {
  if constexpr (kFew) return add(dots.sum[0], dots.sum[1]);
  return dots.sum[0];
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE

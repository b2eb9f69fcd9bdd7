// Sums of products of weights' bytes with activations' where an instruction adds two products in 16
// bits: as many of these are added there as cannot overflow, which costs less than to widen each.
#pragma once

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

// One sum for each lane, of words of weights whose bytes are at most kLargest.
template <int kLargest, bool kFew>
struct Dots {
  // Pairs of products that fit 16 bits; two of wide bytes do not.
  static constexpr int kDepth = kLargest > 127 ? 0 : 32767 / (2 * 127 * kLargest);
  Ints sum;
  Pairs pairs;
};

template <int kLargest, bool kFew>
AERIE_INLINE void begin(Dots<kLargest, kFew>& dots, Ints start) {
  dots.sum = start;
}
// kAdded: how many have been added.
template <int kAdded, int kLargest, bool kFew>
AERIE_INLINE void add_word(Dots<kLargest, kFew>& dots, Bytes w, const int8_t* x) {
  constexpr int kDepth = Dots<kLargest, kFew>::kDepth;
  if constexpr (kDepth == 0) {
    dots.sum = dot4<true>(dots.sum, w, x);
  } else {
    const Pairs products = multiply_pairs(w, x);
    if constexpr (kAdded % kDepth == 0) {
      if constexpr (kAdded > 0) dots.sum = add_pairs(dots.sum, dots.pairs);
      dots.pairs = products;
    } else {
      dots.pairs = add(dots.pairs, products);
    }
    // Else g++ 12 multiplies first, adds later, and runs out of registers between.
    keep_here(dots.pairs);
  }
}
template <int kAdded, int kLargest, bool kFew>
AERIE_INLINE Ints total(const Dots<kLargest, kFew>& dots) {
  if constexpr (Dots<kLargest, kFew>::kDepth == 0) return dots.sum;
  return add_pairs(dots.sum, dots.pairs);
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE

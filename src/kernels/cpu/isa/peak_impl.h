// What the processor can do at most, written over the sixteen lanes of simd_*.h: nothing but dot
// products, from data that stay in the first cache; nothing but reads. Kernels are held against it.
#pragma once

namespace aerie::kernels::AERIE_CPU_NAMESPACE {
namespace {

// Reads four lines of each stream in turn.
template <int kStreams>
void read_streams(const PeakShare& s) {
  constexpr int64_t kStep = 256;
  const int64_t length = s.bytes / kStreams;
  Floats sum[4] = {zero(), zero(), zero(), zero()};
  for (int64_t at = 0; at < length; at += kStep) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const std::byte* p = s.data + stream * length + at;
      for (int line = 0; line < 4; ++line) {
        __builtin_prefetch(p + 64 * line + s.ahead);
        sum[line] = add(sum[line], load(reinterpret_cast<const float*>(p + 64 * line)));
      }
    }
  }
  *s.result = reduce_add(add(add(sum[0], sum[1]), add(sum[2], sum[3])));
}

// The same, in a register: what is near it has an address that takes no instructions.
template <typename T>
AERIE_INLINE const T* one_pointer(const T* p) {
  asm("" : "+r"(p));
  return p;
}

// Word kWord of the inputs and those after it. Weights have four bits.
template <int kWord, int kColumns, int kSums>
AERIE_INLINE void add_peak_words(Dots<15, false> (&dots)[kSums], const Bytes* weights,
                                 const int8_t* inputs) {
#pragma GCC unroll 24
  for (int j = 0; j < kSums; ++j) {
    const int8_t* x = inputs + 4 * (kWord + kPeakDepth * (j / kColumns));
    add_word<kWord>(dots[j], weights[j % kColumns], x);
  }
  if constexpr (kWord + 1 < kPeakUnroll) {
    add_peak_words<kWord + 1, kColumns>(dots, weights, inputs);
  }
}

// Products of inputs of several rows, broadcast from the cache, with 16 kColumns weights that stay
// in registers. Which sizes keep the units busy depends on the number of registers: the caller
// tries all. The pragmas keep compilers from holding the sums in memory, and from moving them
// between registers more than once in kPeakUnroll steps.
template <int kTile>
void dot_bytes(const PeakShare& s) {
  constexpr int kColumns = kPeakTiles[kTile].columns, kSums = kColumns * kPeakTiles[kTile].rows;
  const auto* inputs = reinterpret_cast<const int8_t*>(s.data);
  Ints sum[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sum[i] = set1(0);
  Bytes weights[kColumns];
#pragma GCC unroll 24
  for (int c = 0; c < kColumns; ++c) weights[c] = load_bytes(s.data + 64 * c);
  for (int64_t step = 0; step < s.steps; step += kPeakUnroll) {
    const int8_t* base = one_pointer(inputs + 4 * (step % kPeakDepth));
    Dots<15, false> dots[kSums];
#pragma GCC unroll 24
    for (int j = 0; j < kSums; ++j) begin(dots[j], sum[j]);
    add_peak_words<0, kColumns>(dots, weights, base);
#pragma GCC unroll 24
    for (int j = 0; j < kSums; ++j) sum[j] = total<kPeakUnroll>(dots[j]);
  }
#pragma GCC unroll 24
  for (int i = 1; i < kSums; ++i) sum[0] = add(sum[0], sum[i]);
  *s.result = static_cast<float>(reduce_add(sum[0]));
}

template <int kTile>
void dot_floats(const PeakShare& s) {
  constexpr int kColumns = kPeakTiles[kTile].columns, kSums = kColumns * kPeakTiles[kTile].rows;
  const auto* data = reinterpret_cast<const float*>(s.data);
  Floats sum[kSums];
#pragma GCC unroll 24
  for (int i = 0; i < kSums; ++i) sum[i] = zero();
  Floats weights[kColumns];
#pragma GCC unroll 24
  for (int c = 0; c < kColumns; ++c) weights[c] = load(data + 16 * c);
  for (int64_t step = 0; step < s.steps; step += kPeakUnroll) {
    const float* base = one_pointer(data + step % kPeakDepth);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kPeakUnroll; ++i) {
#pragma GCC unroll 24
      for (int j = 0; j < kSums; ++j) {
        const Floats x = set1(base[i + kPeakDepth * (j / kColumns)]);
        sum[j] = fma(x, weights[j % kColumns], sum[j]);
      }
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kSums; ++i) sum[0] = add(sum[0], sum[i]);
  *s.result = reduce_add(sum[0]);
}

void peak(const PeakShare& s) {
  using Run = void (*)(const PeakShare&);
  constexpr Run kReads[] = {read_streams<1>, read_streams<2>, read_streams<4>, read_streams<8>};
  constexpr Run kBytes[] = {dot_bytes<0>, dot_bytes<1>, dot_bytes<2>, dot_bytes<3>,
                            dot_bytes<4>, dot_bytes<5>, dot_bytes<6>};
  constexpr Run kFloats[] = {dot_floats<0>, dot_floats<1>, dot_floats<2>, dot_floats<3>,
                             dot_floats<4>, dot_floats<5>, dot_floats<6>};
  (s.kind == PeakKind::kRead ? kReads : s.kind == PeakKind::kInt8 ? kBytes : kFloats)[s.variant](s);
}

}  // namespace
}  // namespace aerie::kernels::AERIE_CPU_NAMESPACE

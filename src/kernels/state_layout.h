// How what a layer with linear attention keeps of a sequence lies in memory.
//
// A state: for each head a matrix [key_dim][value_dim], which takes keys to values, in tiles of 16
// values, [head][tile][key_dim][16]; then the last taps - 1 inputs of the short convolution, the
// oldest first, [taps - 1][channels].
//
// A record is what one row did to a state, so that a state can follow one path of a draft and not
// another: the row's keys [key_heads][key_dim], what was added along them, [heads][value_dim], the
// decays [heads], and the row's input to the convolution [channels].
//
// A layer that is a short convolution and nothing more has no heads, and keeps inputs alone.
#pragma once

#include <cstdint>

namespace aerie::kernels {

inline constexpr int kStateLanes = 16;

// Which of the key heads a head goes with.
enum class HeadOrder : uint8_t {
  kGrouped,  // as many heads as belong to a key head lie side by side
  kTiled,    // head h goes with key head h % key_heads
};

// All sizes in floats.
struct StateLayout {
  int heads = 0;      // 0: there is no matrix
  int key_heads = 0;  // divides heads
  int key_dim = 0;    // this and the next multiples of 16
  int value_dim = 0;
  int taps = 0;  // of the convolution, at least 2
  HeadOrder order = HeadOrder::kGrouped;
  int plain = 0;  // channels of the convolution beside those of keys, queries and values

  int key_head(int head) const {
    return order == HeadOrder::kTiled ? head % key_heads : head / (heads / key_heads);
  }
  int64_t keys() const { return int64_t{key_heads} * key_dim; }
  int64_t values() const { return int64_t{heads} * value_dim; }
  int64_t channels() const { return 2 * keys() + values() + plain; }

  int64_t matrix() const { return int64_t{key_dim} * value_dim; }
  int64_t tile() const { return int64_t{key_dim} * kStateLanes; }
  int64_t inputs() const { return heads * matrix(); }  // where the convolution's begin
  int64_t state() const { return inputs() + (taps - 1) * channels(); }

  int64_t changes() const { return keys(); }  // where they begin in a record, and so on
  int64_t decays() const { return changes() + values(); }
  int64_t input() const { return decays() + heads; }
  int64_t record() const { return input() + channels(); }
};

// Adds what a row did to a state: M = decay M + key change^T, and its input behind the others. The
// bits are those of Backend::delta_rule().
void apply_record(const StateLayout& layout, const float* record, float* state);

// Of one tile: to = decay from + key change^T, [key_dim][16]; both may be the same.
void advance_tile(const float* from, int key_dim, float decay, const float* key,
                  const float* change, float* to);

}  // namespace aerie::kernels

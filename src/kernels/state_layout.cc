#include "kernels/state_layout.h"

#include <algorithm>
#include <cmath>

#include "base/clones.h"

namespace aerie::kernels {

AERIE_CLONES void advance_tile(const float* from, int key_dim, float decay, const float* key,
                               const float* change, float* to) {
  for (int i = 0; i < key_dim; ++i) {
    for (int lane = 0; lane < kStateLanes; ++lane) {
      const int at = i * kStateLanes + lane;
      to[at] = std::fma(key[i], change[lane], decay * from[at]);
    }
  }
}

void apply_record(const StateLayout& layout, const float* record, float* state) {
  float* tile = state;
  for (int head = 0; head < layout.heads; ++head) {
    const float* key = record + int64_t{layout.key_head(head)} * layout.key_dim;
    const float* change = record + layout.changes() + int64_t{head} * layout.value_dim;
    const float decay = record[layout.decays() + head];
    for (int v = 0; v < layout.value_dim; v += kStateLanes, tile += layout.tile()) {
      advance_tile(tile, layout.key_dim, decay, key, change + v, tile);
    }
  }
  float* inputs = state + layout.inputs();
  const int64_t channels = layout.channels(), kept = (layout.taps - 2) * channels;
  std::copy_n(inputs + channels, kept, inputs);
  std::copy_n(record + layout.input(), channels, inputs + kept);
}

}  // namespace aerie::kernels

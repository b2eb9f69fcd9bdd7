#include "kernels/reference/reference_recurrence.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace aerie::kernels::reference {
namespace {

// Where the element [key][value] of a head's matrix lies.
int64_t element(const StateLayout& layout, int key, int value) {
  return value / kStateLanes * layout.tile() + int64_t{key} * kStateLanes + value % kStateLanes;
}

// One head of one row: fills changes and outputs, [value_dim], from the matrix before it.
void step(const DeltaRuleArgs& args, int64_t row, int head, const float* matrix, float* changes) {
  const StateLayout& layout = args.layout;
  const int64_t key_at = (row * layout.key_heads + layout.key_head(head)) * layout.key_dim;
  const int64_t at = row * layout.heads + head;
  const float *key = args.k + key_at, *query = args.q + key_at;
  const double decay = double{args.decay[at]}, beta = double{args.beta[at]};
  double product = 0.0;
  for (int i = 0; i < layout.key_dim; ++i) product += double{key[i]} * double{query[i]};
  for (int v = 0; v < layout.value_dim; ++v) {
    double remembered = 0.0, read = 0.0;
    for (int i = 0; i < layout.key_dim; ++i) {
      const auto m = double{matrix[element(layout, i, v)]};
      remembered += m * double{key[i]};
      read += m * double{query[i]};
    }
    const int64_t value_at = at * layout.value_dim + v;
    const double known = args.subtract ? decay * remembered : 0.0;
    const double change = beta * (double{args.v[value_at]} - known);
    changes[v] = static_cast<float>(change);
    args.out[value_at] = static_cast<float>(decay * read + product * change);
  }
}

class Sequence {
 public:
  Sequence(const DeltaRuleArgs& args, const StateSequence& sequence)
      : args_(args),
        layout_(args.layout),
        sequence_(sequence),
        after_(args.rows.size()),
        changes_(static_cast<size_t>(layout_.values())) {}

  void run() {
    float* state = args_.states + sequence_.slot * layout_.state();
    if (sequence_.blank) std::fill_n(state, layout_.inputs(), 0.0f);
    for (const int32_t record : sequence_.settled) apply(record_of(record), state);
    base_.assign(state, state + layout_.inputs());
    for (const int32_t row : sequence_.rows) run_row(row);
  }

 private:
  float* record_of(int32_t index) const { return args_.records + index * layout_.record(); }

  void apply(const float* record, float* matrices) const {
    advance(record, record + layout_.changes(), record + layout_.decays(), matrices);
  }
  void advance(const float* keys, const float* changes, const float* decays,
               float* matrices) const {
    for (int head = 0; head < layout_.heads; ++head) {
      for (int v = 0; v < layout_.value_dim; v += kStateLanes) {
        float* tile = matrices + head * layout_.matrix() + int64_t{v} * layout_.key_dim;
        advance_tile(tile, layout_.key_dim, decays[head],
                     keys + int64_t{layout_.key_head(head)} * layout_.key_dim,
                     changes + int64_t{head} * layout_.value_dim + v, tile);
      }
    }
  }

  void run_row(int32_t index) {
    const StateRow& row = args_.rows[static_cast<size_t>(index)];
    std::vector<float>& state = after_[static_cast<size_t>(index)];
    state = row.parent >= 0 ? after_[static_cast<size_t>(row.parent)] : base_;
    for (const int32_t record : row.above) apply(record_of(record), state.data());
    for (int head = 0; head < layout_.heads; ++head) {
      step(args_, index, head, state.data() + head * layout_.matrix(),
           changes_.data() + int64_t{head} * layout_.value_dim);
    }
    const float* keys = args_.k + index * layout_.keys();
    const float* decays = args_.decay + int64_t{index} * layout_.heads;
    advance(keys, changes_.data(), decays, state.data());
    if (row.record >= 0) {
      float* record = record_of(row.record);
      std::copy_n(keys, layout_.keys(), record);
      std::ranges::copy(changes_, record + layout_.changes());
      std::copy_n(decays, layout_.heads, record + layout_.decays());
    }
    for (const int32_t slot : row.into) {
      if (slot >= 0) std::ranges::copy(state, args_.states + slot * layout_.state());
    }
  }

  const DeltaRuleArgs& args_;
  const StateLayout& layout_;
  const StateSequence& sequence_;
  std::vector<float> base_;
  std::vector<std::vector<float>> after_;
  std::vector<float> changes_;
};

}  // namespace

void short_conv(const ShortConvArgs& args) {
  int64_t channels = 0;
  for (const ShortConvArgs::Part& part : args.parts) channels += part.channels;
  const auto rows = static_cast<int64_t>(args.inputs.size()) / args.taps;
  int64_t first = 0;
  for (const ShortConvArgs::Part& part : args.parts) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < part.channels; ++c) {
        double sum = args.bias != nullptr ? double{args.bias[first + c]} : 0.0;
        for (int64_t t = 0; t < args.taps; ++t) {
          const float* input = args.inputs[static_cast<size_t>(r * args.taps + t)];
          if (input == nullptr) continue;
          sum += double{args.weights[t * channels + first + c]} * double{input[first + c]};
        }
        const double y = args.silu ? sum / (1.0 + std::exp(-sum)) : sum;
        part.y[r * part.channels + c] = static_cast<float>(y);
      }
    }
    first += part.channels;
  }
  for (const ShortConvArgs::Copy& copy : args.copies) {
    for (int64_t c = 0; c < channels; ++c) copy.to[c] = copy.from != nullptr ? copy.from[c] : 0.0f;
  }
}

void delta_rule(const DeltaRuleArgs& args) {
  for (const StateSequence& sequence : args.sequences) Sequence(args, sequence).run();
}

}  // namespace aerie::kernels::reference

// What a model is, in numbers: read from a file's metadata, checked there, constant afterwards.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace aerie {

// What a layer computes whose state is of one size, however long the sequence is.
enum class LinearKind : uint8_t {
  kDeltaRule,   // Gated DeltaNet: Yang et al. 2024, 2412.06464
  kStateSpace,  // Mamba-2: Dao & Gu 2024, 2405.21060
  kShortConv,   // a convolution between two gates, and no heads (LFM2)
};

// Layers with linear attention, as all layers of these kinds are called.
struct LinearAttention {
  int heads = 0;      // of values, each with a matrix key_dim x value_dim; 0: there are none
  int key_heads = 0;  // divides heads
  int key_dim = 0;
  int value_dim = 0;
  int taps = 0;        // of the short convolution before it
  bool tiled = false;  // head h goes with key head h % key_heads, not with h / (heads / key_heads)
  LinearKind kind = LinearKind::kDeltaRule;
  int plain = 0;  // channels of the convolution that are of no head

  int k_width() const { return key_heads * key_dim; }
  int v_width() const { return heads * value_dim; }
  int channels() const { return 2 * k_width() + v_width() + plain; }
  int out_width() const { return v_width() + plain; }  // of what it gives, all heads together
};

// Multi-head latent attention (DeepSeek-AI 2024, 2405.04434): of a position the layer keeps one key
// for all heads, a latent of `rank` with `rope` dimensions behind it that turn, and its value is
// the latent. A head's queries are taken to there by a matrix of the head, and what its attention
// gives from there by another.
struct LatentAttention {
  int rank = 0;        // 0: attention is of keys and values as heads have them
  int query_rank = 0;  // of the latent that queries are made of; 0: they are made of the stream
  int plain = 0;       // dimensions of a head's queries that do not turn
  int rope = 0;        // those that do
  int value_dim = 0;   // of what a head gives

  int query_dim() const { return plain + rope; }
};

// Heads of keys and values.
struct KvHeads {
  int count = 0;
  int dim = 0;

  bool operator==(const KvHeads&) const = default;
};

// Which of the processes that share a model this one is.
struct Rank {
  int index = 0;
  int of = 1;
};

struct ModelConfig {
  std::string family;  // "llama"
  std::string name;    // for people; may be empty
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  // Where layers differ in these, the largest of all layers.
  int kv_heads = 0;  // divides heads
  int head_dim = 0;  // of keys as the cache has them
  int ffn = 0;       // of layers without experts
  // A mixture of experts: feed-forwards of which a row uses some. 0: there are none.
  int experts = 0;
  int used_experts = 0;
  int expert_ffn = 0;
  int shared_ffn = 0;  // of the one that every row uses besides; 0: there is none
  int vocab = 0;       // rows of the LM head: the width of logits
  int context = 0;     // positions that the model was trained for
  LatentAttention latent;
  LinearAttention linear;
  std::vector<bool> linear_layers;  // [layers]: which of them are; empty: none
  // [layers]: positions that attention sees, the row's own counted; 0: all that came before. Empty:
  // no layer has a window, or whoever reads this need not know.
  std::vector<int> windows;
  // [layers]: heads of keys and values, where layers differ in them. Empty: they do not.
  std::vector<KvHeads> kv_by_layer;
  // [layers]: whose keys and values the layer's attention reads, an earlier one's or its own.
  // Empty: all read their own.
  std::vector<int> kv_sources;
  // Heads of keys and values are dealt out over the ranks, and a cache keeps this one's.
  Rank rank;

  KvHeads kv_of(int layer) const {
    return kv_by_layer.empty() ? KvHeads{kv_heads, head_dim}
                               : kv_by_layer[static_cast<size_t>(layer)];
  }
  int kv_source(int layer) const {
    return kv_sources.empty() ? layer : kv_sources[static_cast<size_t>(layer)];
  }
  bool has_own_kv(int layer) const { return kv_source(layer) == layer; }
  // Whether no layer from this one on reads keys and values of one before it.
  bool divides_at(int layer) const {
    for (int i = layer; i < layers; ++i) {
      if (kv_source(i) < layer) return false;
    }
    return true;
  }
  // Whether another layer's attention reads its keys and values.
  bool is_read(int layer) const {
    if (kv_sources.empty()) return false;
    return std::ranges::count(kv_sources, layer) > (has_own_kv(layer) ? 1 : 0);
  }
  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
  // Of what attention gives, all heads together.
  int attended_width() const { return heads * (latent.rank > 0 ? latent.value_dim : head_dim); }
  bool is_linear(int layer) const {
    return !linear_layers.empty() && linear_layers[static_cast<size_t>(layer)];
  }
  int count_linear() const { return static_cast<int>(std::ranges::count(linear_layers, true)); }
  bool has_window(int layer) const {
    return !windows.empty() && windows[static_cast<size_t>(layer)] > 0;
  }
  int count_windows() const {
    return static_cast<int>(windows.size()) - static_cast<int>(std::ranges::count(windows, 0));
  }
  // 0: there is none.
  int largest_window() const { return windows.empty() ? 0 : *std::ranges::max_element(windows); }
  // Without these layers, which are in ascending order. Requires is_read() of none.
  ModelConfig without(std::span<const int32_t> skipped) const {
    ModelConfig rest = *this;
    rest.layers -= static_cast<int>(skipped.size());
    rest.linear_layers.clear();
    rest.windows.clear();
    rest.kv_by_layer.clear();
    rest.kv_sources.clear();
    for (int32_t layer = 0; layer < layers; ++layer) {
      if (std::ranges::binary_search(skipped, layer)) continue;
      if (!linear_layers.empty()) rest.linear_layers.push_back(is_linear(layer));
      if (!windows.empty()) rest.windows.push_back(windows[static_cast<size_t>(layer)]);
      if (!kv_by_layer.empty()) rest.kv_by_layer.push_back(kv_of(layer));
      if (kv_sources.empty()) continue;
      const int source = kv_source(layer);
      const auto before = std::ranges::lower_bound(skipped, source) - skipped.begin();
      rest.kv_sources.push_back(source - static_cast<int>(before));
    }
    return rest;
  }
};

}  // namespace aerie

// The metadata that families share, held to ranges: sizes, rotary embedding, windows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/blueprint.h"
#include "model/model.h"

namespace aerie {

// Reads "<architecture>.<key>". Messages name file and key.
inline constexpr const char* kYarnTruncate = "rope.scaling.yarn_truncate";

class MetadataReader {
 public:
  // Requires a file with general.architecture.
  explicit MetadataReader(const ModelFile& file);

  const ModelFile& file() const { return file_; }
  bool has(std::string_view key) const { return file_.find(full(key)) != nullptr; }
  Expected<int> integer(std::string_view key, int64_t low, int64_t high) const;
  Expected<int> integer_or(std::string_view key, int64_t low, int64_t high, int fallback) const;
  Expected<double> positive_or(std::string_view key, double fallback) const;
  Expected<bool> flag_or(std::string_view key, bool fallback) const;
  // An array of `count` booleans; nothing if it is absent.
  Expected<std::optional<std::vector<bool>>> flags(std::string_view key, size_t count) const;
  // An array of `count` integers; nothing if it is absent, or no array.
  Expected<std::optional<std::vector<int>>> integers(std::string_view key, size_t count,
                                                     int64_t low, int64_t high) const;
  Expected<std::string_view> text_or(std::string_view key, std::string_view fallback) const;

  Status refuse(std::string_view key, std::string_view why) const;       // kInvalidData
  Status unsupported(std::string_view key, std::string_view why) const;  // kUnsupported

  // What all families have: ModelConfig, the norms' epsilon, one plan for each layer with no
  // window and rope 0. kUnsupported for a mixture of experts.
  Expected<Blueprint> read_sizes() const;
  // The sizes, one rotary embedding, and windows in the layers that the file names, or all: what
  // the families of Llama's shape have in common.
  Expected<Blueprint> read_llama_shape() const;
  // The same with experts in the layers that have a router. `normalized`: what their weights are
  // where the file does not say it (ExpertRouter::normalized).
  Expected<Blueprint> read_expert_shape(bool normalized) const;
  // The same with latent attention (ModelConfig::latent), and experts if there are any: their
  // sizes, not how they are chosen.
  Expected<Blueprint> read_latent_shape() const;
  // The same of a family in which layers without heads of keys keep states instead
  // (ModelConfig::linear_layers), and experts, if there are any, as above.
  Expected<Blueprint> read_hybrid_shape() const;
  // Sizes of a family whose layers differ in heads of keys, and in the width of the feed-forward,
  // which files have as arrays (LayerPlan::kv_heads, ffn). Experts, if there are any, as above. No
  // rotary embedding, no windows.
  Expected<Blueprint> read_varied_shape() const;
  // A number for each layer: an array, or one for all.
  Expected<std::vector<int>> by_layer(std::string_view key, size_t count, int64_t low,
                                      int64_t high) const;
  // kUnsupported, naming the key, for heads of a length that attention does not have.
  Status check_head_dim(std::string_view key, int head_dim) const;
  // How experts are chosen, by softmax; `normalized` as above.
  Status read_softmax_router(bool normalized, Blueprint& blueprint) const;
  // Takes the layers that predict further tokens off the end.
  Status drop_predictors(Blueprint& blueprint) const;
  // ssm.*: the sizes of linear attention with heads.
  Expected<LinearAttention> read_linear_attention(bool tiled) const;
  // rope.*, and the tensors rope_freqs and rope_factors_{long,short} of files that have them.
  // rope.scaling.yarn_truncate is a key of Aerie's own (RopeConfig::yarn_truncate).
  Expected<RopeConfig> read_rope(const ModelConfig& config) const;
  // attention.sliding_window, for the layers that attention.sliding_window_pattern names, or else
  // for all but every `period`-th; 1: for all.
  Status read_windows(int period, Blueprint& blueprint) const;

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  enum class Heads : uint8_t { kPlain, kLatent, kByLayer, kVaried };
  Expected<Blueprint> read_all_sizes(Heads heads = Heads::kPlain) const;
  Expected<Blueprint> add_llama_shape(Blueprint blueprint) const;
  Status read_expert_sizes(Blueprint& blueprint) const;
  Status read_heads(bool by_layer, ModelConfig& config) const;
  Expected<int> read_kv_heads(bool by_layer, ModelConfig& config) const;
  Status read_latent_heads(ModelConfig& config) const;
  Status read_lengths(ModelConfig& config) const;
  Status read_varied_sizes(Blueprint& blueprint) const;
  Status read_scaling(RopeConfig& rope) const;
  Status read_factors(const char* tensor, std::vector<float>& factors, int pairs) const;

  const ModelFile& file_;
  std::string prefix_;
};

}  // namespace aerie

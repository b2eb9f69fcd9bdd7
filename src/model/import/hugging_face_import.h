// What a family says about a Hugging Face folder: its configuration in GGUF's keys, its tensors by
// GGUF's names. Collected here, carried out by HuggingFaceFile.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/model_config.h"
#include "format/gguf/metadata_builder.h"
#include "format/json.h"

namespace aerie {

// How a tensor of a folder becomes the one of a GGUF file.
enum class TensorChange : uint8_t {
  kNone,
  kTurnQueries,  // rows in the order of RopeStyle::kPairs instead of kHalves, for all heads
  kTurnKeys,     // the same for the heads of keys
  kTranspose,    // GPT-2 stores [inputs, outputs]
  kUpperRows,    // the first half of a matrix's rows; and, in the second place, the others
  kLowerRows,
  kAddOne,  // Gemma's norms multiply with 1 + w
  // The matrices of all experts in one tensor, [experts, outputs, inputs]; and such a tensor of
  // which the result has the first, or the second half of every expert's outputs.
  kStack,
  kFirstHalves,
  kSecondHalves,
  // The same lying on their side, [experts, inputs, outputs], unless they are of 4-bit blocks; and
  // such a tensor of which the result has every other output, from the first or the second on.
  // Biases of such matrices, [experts, outputs], go along.
  kSideStack,
  kEvenOutputs,
  kOddOutputs,
  // Of latent attention (import/latent_tensors.h): one matrix in which each head's part of keys is
  // followed by that of values, as a stack of either.
  kLatentKeys,
  kLatentValues,
  // Of linear attention (import/linear_tensors.h), with its heads in the order that the file has:
  kHeadRows,       // as many rows for each head
  kHeadRates,      // a number each, of which GGUF has minus its exponential
  kHeadChannels,   // rows of queries and keys, then of each head's values
  kHeadColumns,    // columns of each head's values
  kGroupedInputs,  // rows by key head: queries, keys and values of it; and, in the second place,
  kGroupedGates,   // its gates
  kHeadNumbers,    // a number each, which GGUF has below each other
  kHeadNorm,       // of all heads' values, which GGUF has by key head
};

struct TensorRule {
  // Without ".weight" or ".bias"; "{}" stands for the layer, a second one for the expert, whose
  // matrices are stacked in the result.
  std::string from;
  std::string to;  // the same in GGUF
  TensorChange change = TensorChange::kNone;
  // Where the second half of a tensor goes whose first goes to `to`, or the gates of inputs.
  std::string to_second = {};
};

// What a configuration calls the sizes. Llama's names, which most families kept.
struct SizeNames {
  const char* layers = "num_hidden_layers";
  const char* hidden = "hidden_size";
  const char* heads = "num_attention_heads";
  const char* kv_heads = "num_key_value_heads";  // absent: as many as heads
  const char* ffn = "intermediate_size";
  const char* context = "max_position_embeddings";
  int head_dim = 0;    // where the key head_dim is absent; 0: hidden / heads
  int ffn_factor = 0;  // where the key of ffn is absent: so many times hidden; 0: it must be there
};

// What a configuration calls the sizes of a mixture of experts, and its tensors in a layer.
struct ExpertNames {
  const char* count = "num_experts";
  const char* used = "num_experts_per_tok";
  const char* ffn = "moe_intermediate_size";  // null: that of the feed-forward's width
  const char* normalized = "norm_topk_prob";  // null: the family says it
  bool usually_normalized = false;            // where that key is absent
  const char* router = "mlp.gate";
  // Of an expert; the second "{}" stands for its number. Null: add_stack_rules() has them.
  const char* gate = "mlp.experts.{}.gate_proj";
  const char* up = "mlp.experts.{}.up_proj";
  const char* down = "mlp.experts.{}.down_proj";
};

// A number that is greater than 0 in 32 bits too, which is what GGUF keeps: the value of `key`, or
// the fallback; without one kNotFound if the key is absent. kInvalidData for others.
Expected<double> positive_number(const JsonObject& object, std::string_view key,
                                 std::optional<double> fallback = std::nullopt);

// What families of Llama's shape have where config.json is silent.
struct LlamaDefaults {
  double norm_eps = 1e-6;
  double rope_base = 10000.0;
  double rope_part = 1.0;  // partial_rotary_factor
  SizeNames sizes = {};
};

class HuggingFaceImport {
 public:
  // Of a parsed config.json; `file` is for messages. kInvalidData if it is not an object.
  static Expected<HuggingFaceImport> create(Json config, const std::string& file);

  const JsonObject& whole_config() const { return whole_; }
  // What it says of the language model: in a model that also sees or hears, "text_config".
  const JsonObject& config() const { return config_; }

  // Whether a key is there and null: "none", where an absent one means the family's usual value.
  bool is_null(std::string_view key) const;
  // The key sliding_window: 0 if it is null, `usual` if it is absent.
  Expected<int64_t> sliding_window(int64_t usual) const;

  // Metadata "<architecture>.<key>". The architecture comes first. `from`: the configuration's key,
  // for messages about the value.
  void set_architecture(std::string_view name);
  void add_integer(std::string_view key, int64_t value, std::string_view from);
  void add_number(std::string_view key, double value);
  void add_text(std::string_view key, std::string_view value);
  void add_flag(std::string_view key, bool value);
  void add_flags(std::string_view key, const std::vector<bool>& values);
  void add_integers(std::string_view key, const std::vector<int32_t>& values,
                    std::string_view from);
  // The value of `from` in the configuration, or the fallback.
  Status copy_number(std::string_view from, std::string_view key, double fallback);

  Status copy_sizes(const SizeNames& names = {});
  // Sizes, norms' epsilon, rotary embedding, and that the feed-forward is gated with SiLU.
  Status copy_llama_shape(const LlamaDefaults& defaults);
  // kUnsupported unless the configuration's `key`, or the fallback, is one of `accepted`.
  Status require_text(std::string_view key, std::string_view fallback,
                      std::initializer_list<std::string_view> accepted) const;
  // Rotary embedding as `parameters` give it: rope_parameters or rope_scaling, or null for none.
  // What it lacks is taken from the configuration: rope_theta (`base` if that lacks it too),
  // partial_rotary_factor, original_max_position_embeddings. Stretched positions need tensors of
  // their own in some forms: these are added.
  Status add_rope(const Json* parameters, double base, double part = 1.0);
  // The sections of rotary embeddings of pictures, which a text does not tell apart; llama.cpp
  // wants them.
  Status add_rope_sections();
  // The usual place of the parameters: rope_parameters, else rope_scaling, else null.
  const Json* rope_parameters() const;
  // Which layers have a window, by layer_types if the configuration has them; else all for which
  // `windowed` holds. Adds nothing if there is no window or no such layer.
  template <typename Windowed>
  Status add_windows(int64_t window, const Windowed& windowed) {
    std::vector<bool> layers;
    for (int64_t i = 0; i < layers_; ++i) layers.push_back(windowed(i));
    return add_windows(window, std::move(layers));
  }

  // The windows of Qwen's models: only with use_sliding_window, from layer max_window_layers on.
  Status add_qwen_windows();

  // Experts, in the layers that have a router.
  Status add_experts(const ExpertNames& names = {});

  // The expert that every row uses besides, by Qwen's names.
  Status add_shared_expert();
  // The sizes of linear attention. `tiled`: LinearAttention::tiled, of the file that is made.
  Status add_linear_attention(bool tiled);
  // Its sizes, of which the family adds what a file says, and how many heads of keys each layer
  // has: none where `linear` says so, which has an entry for each layer.
  Status set_linear_attention(const LinearAttention& linear, const std::vector<bool>& layers,
                              std::string_view from);
  // Whether each of the entries under `key`, one for each layer, is one of `linear`; the others
  // must be of `attention`.
  Expected<std::vector<bool>> linear_layers(
      std::string_view key, std::initializer_list<std::string_view> linear,
      std::initializer_list<std::string_view> attention) const;

  // How tensors of latent attention are divided.
  void set_latent_attention(const LatentAttention& latent) { latent_ = latent; }

  // Tensors.
  void add_rule(std::string_view from, std::string_view to,
                TensorChange change = TensorChange::kNone, std::string_view to_second = {});
  // Stacks of experts' matrices (TensorChange::kStack), gates before what they are for in one.
  void add_stack_rules(std::string_view gate_up, std::string_view down);
  // The same with every other output of the gates, lying on their side (kEvenOutputs, kSideStack).
  void add_side_stack_rules(std::string_view gate_up, std::string_view down);
  // Embedding, norms, projections and feed-forward by Llama's names.
  void add_llama_rules(bool turned);
  void rename_prefix(std::string_view from, std::string_view to);  // before the rules; first match
  void rename_suffix(std::string_view from, std::string_view to);  // the same, after prefixes
  void pass_over_prefix(std::string_view prefix);                  // not part of the language model
  void pass_over_suffix(std::string_view suffix);                  // holds nothing that is needed
  // Modules that predict further tokens, which draft and are no part of the model: by the names of
  // their own that MiMo and Qwen gave them, or as the layers behind the model's that
  // num_nextn_predict_layers announces (DeepSeek, GLM), but for those of set_predictors(). Of a
  // configuration whose sizes were copied.
  void pass_over_predictors();
  void add_tensor(std::string name, std::vector<float> values);
  // The rules' `from`, whose ".bias" must be there: a model without it would be another.
  void require_biases(std::initializer_list<std::string_view> from);
  // Layers for which `lacks` has true may be without this tensor, and others may not.
  void let_layers_lack(std::string_view from, std::vector<bool> lacks);
  // Those that attention_bias and mlp_bias announce, by Llama's names.
  Status require_announced_biases();

  // Whether the folder has a tensor of this name, packed or not; none as long as nobody said so.
  void set_tensors(std::function<bool(std::string_view)> has) { has_tensor_ = std::move(has); }
  bool has_tensor(std::string_view name) const { return has_tensor_ && has_tensor_(name); }
  // So many layers behind the model's predict further tokens, and are read. Before the sizes.
  void set_predictors(int64_t count) { predictors_ = count; }
  int64_t predictors() const { return predictors_; }

  // For HuggingFaceFile.
  int64_t layers() const { return layers_; }  // the model's
  int64_t heads() const { return heads_; }
  int64_t kv_heads() const { return kv_heads_; }
  int64_t head_dim() const { return head_dim_; }
  int64_t rope_dimensions() const { return rope_dimensions_; }
  int64_t experts() const { return experts_; }  // 0: there are none
  const LatentAttention& latent() const { return latent_; }
  const LinearAttention& linear() const { return linear_; }
  MetadataBuilder& metadata() { return metadata_; }
  const std::string& architecture() const { return architecture_; }
  const std::vector<TensorRule>& rules() const { return rules_; }
  const std::vector<std::pair<std::string, std::vector<float>>>& made() const { return made_; }
  const std::vector<std::string>& required_biases() const { return required_biases_; }
  bool may_lack(std::string_view from, int64_t layer) const;
  bool says_what_lacks(std::string_view from) const { return lacking_.contains(from); }
  // "hidden_size of config.json" for a whole metadata key; the key itself if it was made.
  std::string origin_of_key(std::string_view key) const;
  // The name after renaming; empty if it is passed over.
  std::string renamed(std::string_view name) const;
  // The name whose suffix, renamed, gives this one.
  std::string before_suffix(std::string name) const;

 private:
  HuggingFaceImport(std::shared_ptr<const Json> json, JsonObject whole, JsonObject config)
      : json_(std::move(json)), whole_(std::move(whole)), config_(std::move(config)) {}
  Status add_windows(int64_t window, std::vector<bool> layers);
  Status add_yarn(const JsonObject& rope);
  Status add_llama3(const JsonObject& rope, double base);
  Status add_long_rope(const JsonObject& rope);
  Expected<int64_t> original_context(const JsonObject& rope) const;
  std::string full(std::string_view key) const { return architecture_ + "." + std::string(key); }

  std::shared_ptr<const Json> json_;
  JsonObject whole_, config_;
  std::string architecture_;
  MetadataBuilder metadata_;
  int64_t layers_ = 0, heads_ = 0, kv_heads_ = 0, head_dim_ = 0, rope_dimensions_ = 0;
  int64_t context_ = 0, experts_ = 0;
  LatentAttention latent_;
  LinearAttention linear_;
  int64_t predictors_ = 0;
  std::function<bool(std::string_view)> has_tensor_;
  std::vector<TensorRule> rules_;
  std::vector<std::pair<std::string, std::string>> prefixes_, suffixes_;
  std::vector<std::string> passed_prefixes_, passed_suffixes_;
  std::vector<std::pair<std::string, std::vector<float>>> made_;
  std::vector<std::string> required_biases_;
  std::map<std::string, std::vector<bool>, std::less<>> lacking_;
  std::map<std::string, std::string, std::less<>> key_origins_;
};

}  // namespace aerie

#include "train/methods/eagle/continued_head.h"

#include <nlohmann/json.hpp>

#include "draft/network/draft_vocabulary.h"
#include "format/json.h"
#include "format/safetensors/safetensors_folder.h"

namespace aerie::train {
namespace {

constexpr int64_t kMost = int64_t{1} << 24;

// How many tokens a draft of it has, as the form's proposal methods say.
void read_depth(const Json& config, int& depth) {
  const Json::json_pointer place("/speculators_config/proposal_methods/0/speculative_tokens");
  if (!config.contains(place) || !config.at(place).is_number_integer()) return;
  const auto tokens = config.at(place).get<int64_t>();
  if (tokens >= 1 && tokens <= 64) depth = static_cast<int>(tokens);
}

Status read_layer(const JsonObject& layer, Eagle3HeadOptions& options) {
  AERIE_ASSIGN_OR_RETURN(options.layers, layer.integer_in("num_hidden_layers", 1, 64));
  AERIE_ASSIGN_OR_RETURN(options.intermediate, layer.integer_in("intermediate_size", 1, kMost));
  AERIE_ASSIGN_OR_RETURN(options.heads, layer.integer_in("num_attention_heads", 1, kMost));
  AERIE_ASSIGN_OR_RETURN(options.kv_heads, layer.integer_in("num_key_value_heads", 1, kMost));
  return {};
}

}  // namespace

Expected<std::vector<int32_t>> drafted_ids(const std::string& folder, int vocab) {
  AERIE_ASSIGN_OR_RETURN(const SafetensorsFolder files, SafetensorsFolder::open(folder));
  const SafetensorsTensor* stored = files.find("d2t");
  if (stored == nullptr) return std::vector<int32_t>();
  AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> d2t, read_integers(*stored));
  AERIE_ASSIGN_OR_RETURN(std::vector<int32_t> ids, read_draft_ids(d2t, vocab, files.name()));
  AERIE_RETURN_IF_ERROR(files.check());
  return ids;
}

Status read_shape(const std::string& folder, Eagle3HeadOptions& options, int& depth) {
  const std::string path = folder + "/config.json";
  AERIE_ASSIGN_OR_RETURN(const Json json, read_json(path));
  AERIE_ASSIGN_OR_RETURN(const JsonObject config, JsonObject::view(json, path));
  AERIE_ASSIGN_OR_RETURN(const JsonObject layer, config.object("transformer_layer_config"));
  AERIE_RETURN_IF_ERROR(read_layer(layer, options));
  AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> layers,
                         config.integers("eagle_aux_hidden_state_layer_ids"));
  options.tap_layers.assign(layers.begin(), layers.end());
  AERIE_ASSIGN_OR_RETURN(options.norm_before_residual,
                         config.boolean("norm_before_residual", false));
  AERIE_ASSIGN_OR_RETURN(options.fc_norm, config.boolean("fc_norm", false));
  AERIE_ASSIGN_OR_RETURN(options.norm_output, config.boolean("norm_output", false));
  AERIE_ASSIGN_OR_RETURN(options.train_embedding, config.boolean("embed_requires_grad", false));
  if (config.find("mask_token_id") != nullptr) {
    AERIE_ASSIGN_OR_RETURN(const int64_t mask, config.integer_in("mask_token_id", 0, INT32_MAX));
    options.mask_token = static_cast<int32_t>(mask);
  }
  read_depth(json, depth);
  return {};
}

}  // namespace aerie::train

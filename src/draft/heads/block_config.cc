#include "draft/heads/block_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "base/errors.h"
#include "draft/heads/feature_network.h"

namespace aerie {
namespace {

// A key's place: "dflash_config", if it is there, or the top.
class BlockConfig {
 public:
  static Expected<BlockConfig> read(const HeadFile& file) {
    BlockConfig config(file.config_object());
    if (config.top_.has(kInner)) {
      AERIE_ASSIGN_OR_RETURN(JsonObject inner, config.top_.object(kInner));
      config.inner_.emplace(std::move(inner));
    }
    return config;
  }

  const JsonObject& holder(std::string_view key) const {
    return inner_ && inner_->has(key) ? *inner_ : top_;
  }
  bool has(std::string_view key) const { return holder(key).has(key); }

 private:
  static constexpr std::string_view kInner = "dflash_config";
  explicit BlockConfig(JsonObject top) : top_(std::move(top)) {}

  JsonObject top_;
  std::optional<JsonObject> inner_;
};

// "target_layer_ids" are the layers that the taps leave, "aux_hidden_state_layer_ids" of
// speculators those that they enter.
Expected<std::vector<int32_t>> read_block_taps(const HeadFile& file, const BlockConfig& config,
                                               int layers) {
  for (const auto& [key, added] : {std::pair<std::string_view, int64_t>{"target_layer_ids", 1},
                                   {"aux_hidden_state_layer_ids", 0}}) {
    const JsonObject& at = config.holder(key);
    if (!at.has(key)) continue;
    AERIE_ASSIGN_OR_RETURN(const std::vector<int64_t> ids, at.integers(key));
    if (ids.empty()) return at.error(StatusCode::kInvalidData, key, "names no layer");
    std::vector<int32_t> taps;
    for (const int64_t id : ids) {
      // What leaves the last layer is normed in some implementations and not in others.
      if (id + added < 0 || id + added >= layers) {
        return at.error(StatusCode::kInvalidArgument, key,
                        "has {}, and of the target's {} layers {} to {} can be tapped: this head "
                        "is of another model (or give tap_layers)",
                        id, layers, -added, layers - 1 - added);
      }
      taps.push_back(static_cast<int32_t>(id + added));
    }
    return taps;
  }
  AERIE_ASSIGN_OR_RETURN(const Blueprint blueprint, file.blueprint());
  if (layers < 4) {
    return invalid_argument(
        "{}: config.json names no layers to tap (target_layer_ids), and the target has too few for "
        "the usual ones: give tap_layers",
        file.name());
  }
  return usual_block_taps(layers, blueprint.config.layers);
}

bool is_dspark(const JsonObject& top) {
  const Json* type = top.find("speculators_model_type");
  if (type != nullptr) return *type == "dspark";
  const Json* names = top.find("architectures");
  return names != nullptr && names->is_array() && std::ranges::any_of(*names, [](const Json& name) {
           return name.is_string() &&
                  name.get_ref<const std::string&>().find("DSpark") != std::string::npos;
         });
}

}  // namespace

std::vector<int32_t> usual_block_taps(int layers, int drafting) {
  std::vector<int32_t> taps;
  for (int i = 0; i < drafting; ++i) {
    const double step = drafting == 1 ? 0.0
                                      : static_cast<double>(std::max(0, layers - 4)) /
                                            static_cast<double>(drafting - 1);
    const double left = drafting == 1 ? layers / 2 : 1.0 + static_cast<double>(i) * step;
    taps.push_back(std::min(static_cast<int32_t>(std::nearbyint(left)) + 1, layers - 1));
  }
  return taps;
}

Expected<BlockPlan> read_block_plan(const HeadFile& file, const ModelConfig& target,
                                    const std::vector<int32_t>& taps) {
  AERIE_ASSIGN_OR_RETURN(const BlockConfig config, BlockConfig::read(file));
  BlockPlan plan;
  constexpr std::string_view kLayers = "num_target_layers";
  if (const JsonObject& at = config.holder(kLayers); at.has(kLayers)) {
    AERIE_ASSIGN_OR_RETURN(const int64_t layers, at.integer(kLayers));
    if (layers != target.layers) {
      return at.error(StatusCode::kInvalidArgument, kLayers,
                      "is {}, and the target has {}: this head is of another model", layers,
                      target.layers);
    }
  }
  plan.taps = taps;
  if (taps.empty()) {
    AERIE_ASSIGN_OR_RETURN(plan.taps, read_block_taps(file, config, target.layers));
  }
  constexpr std::string_view kFirst = "sample_from_anchor", kRows = "block_size",
                             kMask = "mask_token_id";
  AERIE_ASSIGN_OR_RETURN(plan.root_drafts,
                         config.holder(kFirst).boolean(kFirst, is_dspark(file.config_object())));
  const int without = plan.root_drafts ? 0 : 1;  // rows of a block that do not draft
  AERIE_ASSIGN_OR_RETURN(const int64_t rows, config.holder(kRows).integer_in(
                                                 kRows, 1 + without, kMostHeadDepth + without));
  plan.depths = static_cast<int>(rows) - without;
  AERIE_ASSIGN_OR_RETURN(const int64_t mask,
                         config.holder(kMask).integer_in(kMask, 0, int64_t{1} << 24));
  plan.mask_token = static_cast<int32_t>(mask);
  return plan;
}

// As vLLM has it: layers with a window know one, others none, unless that is said for all of them.
Status read_block_order(const HeadFile& file, Blueprint& blueprint) {
  AERIE_ASSIGN_OR_RETURN(const BlockConfig config, BlockConfig::read(file));
  for (const std::string_view key : {"use_swa", "sliding_window_non_causal"}) {
    AERIE_ASSIGN_OR_RETURN(const bool said, config.holder(key).boolean(key, false));
    if (said) {
      return config.holder(key).error(StatusCode::kUnsupported, key,
                                      "is true; windows are those of layer_types, within which a "
                                      "block has an order");
    }
  }
  std::optional<bool> ordered;
  for (const std::string_view key : {"is_causal", "causal"}) {
    if (!config.has(key)) continue;
    AERIE_ASSIGN_OR_RETURN(ordered, config.holder(key).boolean(key));
    break;
  }
  // Without the window that a head's own context may give it.
  AERIE_ASSIGN_OR_RETURN(const Blueprint own, file.blueprint());
  for (size_t i = 0; i < blueprint.layers.size(); ++i) {
    const bool has_window = own.layers[i].window > 0;
    if (has_window && ordered == false) {
      return config.holder("causal").error(
          StatusCode::kUnsupported, "causal",
          "is false, and layer {} has a window, within which a block has an order here", i);
    }
    blueprint.layers[i].sees_chain = !ordered.value_or(has_window);
  }
  return {};
}

}  // namespace aerie

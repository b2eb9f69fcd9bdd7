#include "train/methods/eagle/eagle3_head.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/samples/feature_file.h"
#include "train/methods/head_config.h"
#include "train/nn/ops.h"

namespace aerie::train {

void Eagle3HeadOptions::add_taps_to(SettingList& settings) {
  settings.add("tap-layers", tap_layers,
               "Layers whose input is read, separated by commas (default: 2, half, third last)");
  settings.add("norm-before-residual", norm_before_residual, "The residual begins behind the norm");
  settings.add("fc-norm", fc_norm, "Norm each stream before they are joined");
}

Status Eagle3Head::check(const Target& target) {
  const ModelConfig& config = target.config();
  if (options_.tap_layers.empty()) options_.tap_layers = eagle3_layers(config.layers);
  for (const int32_t layer : options_.tap_layers) {
    if (layer < 0 || layer > config.layers) {
      return {StatusCode::kInvalidArgument, fmt::format("layer {} cannot be tapped: {} has 0 to {}",
                                                        layer, target.path(), config.layers)};
    }
  }
  if (options_.mask && (options_.mask_token < 0 || options_.mask_token >= config.vocab)) {
    return {StatusCode::kInvalidArgument, fmt::format("the mask token {} is none of the model's {}",
                                                      options_.mask_token, config.vocab)};
  }
  return {};
}

Status Eagle3Head::take_from_target(Target& target) {
  AERIE_ASSIGN_OR_RETURN(embedding_, target.embedding());
  AERIE_ASSIGN_OR_RETURN(target_norm_, target.final_norm());
  AERIE_ASSIGN_OR_RETURN(target_output_, target.output());
  AERIE_ASSIGN_OR_RETURN(draft_ids_, target.draft_ids(options_.vocabulary));
  if (options_.vocabulary.empty()) return {};
  target_output_ = target_output_.index_select(0, draft_ids_);
  parameters_.add_draft_ids(draft_ids_);
  parameters_.add_fixed("t2d",
                        at::zeros({target.config().vocab}, draft_ids_.options().dtype(at::kBool))
                            .index_fill_(0, draft_ids_, true));
  return {};
}

Expected<Eagle3Head> Eagle3Head::create(Target& target, const Eagle3HeadOptions& options,
                                        at::Generator& generator) {
  Eagle3Head head;
  head.target_ = &target;
  head.options_ = options;
  AERIE_RETURN_IF_ERROR(head.check(target));
  AERIE_RETURN_IF_ERROR(head.take_from_target(target));
  const ModelConfig& config = target.config();
  const auto device = head.embedding_.device();
  head.tap_width_ = config.hidden;
  head.feature_width_ = config.hidden * static_cast<int64_t>(head.options_.tap_layers.size());
  head.norm_eps_ = target.norm_eps();

  Parameters& parameters = head.parameters_;
  const int64_t width = config.hidden;
  LayerShape shape = head_layer_shape(target, options.intermediate);
  if (options.heads > 0) shape.heads = options.heads;
  if (options.kv_heads > 0) shape.kv_heads = options.kv_heads;
  head.fc_ =
      parameters.add("fc.weight", random_matrix(width, head.feature_width_, generator).to(device));
  if (options.fc_norm) {
    for (size_t i = 0; i < head.options_.tap_layers.size(); ++i) {
      head.fc_norms_.push_back(
          parameters.add(fmt::format("fc_norm.{}.weight", i), at::ones({head.tap_width_}, device)));
    }
  }
  if (options.mask) {
    head.mask_hidden_ =
        parameters.add("mask_hidden", at::randn({1, 1, head.feature_width_}, generator).to(device));
  }
  if (options.train_embedding) {
    head.embedding_ = parameters.add("embed_tokens.weight", head.embedding_.clone());
  }
  head.hidden_norm_ = parameters.add("layers.0.hidden_norm.weight", at::ones({width}, device));
  for (int64_t i = 0; i < options.layers; ++i) {
    shape.attention_input = i == 0 ? 2 * width : width;
    head.layers_.push_back(LlamaLayer::create(parameters, fmt::format("layers.{}", i), shape, true,
                                              device, generator));
  }
  head.output_norm_ = parameters.add("norm.weight", head.target_norm_.clone());
  head.output_ = parameters.add("lm_head.weight", head.target_output_.clone());
  return head;
}

Rotary Eagle3Head::rotary(const at::Tensor& positions) const {
  return make_rotary(positions, layers_.front().shape.head_dim, target_->rope_base());
}

at::Tensor Eagle3Head::fuse(const at::Tensor& features) const {
  if (fc_norms_.empty()) return at::linear(features, fc_);
  std::vector<at::Tensor> normed;
  normed.reserve(fc_norms_.size());
  for (size_t i = 0; i < fc_norms_.size(); ++i) {
    normed.push_back(rms_norm(features.narrow(1, static_cast<int64_t>(i) * tap_width_, tap_width_),
                              fc_norms_[i], norm_eps_));
  }
  return at::linear(at::cat(normed, 1), fc_);
}

Eagle3Head::Entry Eagle3Head::enter(const at::Tensor& embedded, const at::Tensor& g) const {
  const at::Tensor normed = rms_norm(g, hidden_norm_, norm_eps_);
  const at::Tensor token = rms_norm(embedded, layers_.front().input_norm, norm_eps_);
  return {at::cat({token, normed}, 1), options_.norm_before_residual ? normed : g};
}

at::Tensor Eagle3Head::normed(const at::Tensor& stream) const {
  return rms_norm(stream, output_norm_, norm_eps_);
}

at::Tensor Eagle3Head::logits(const at::Tensor& stream) const {
  return at::linear(normed(stream), output_);
}

at::Tensor Eagle3Head::handed(const at::Tensor& stream) const {
  return options_.norm_output ? normed(stream) : stream;
}

at::Tensor Eagle3Head::wanted_logits(const at::Tensor& last) const {
  const at::NoGradGuard no_grad;
  return target_logits(*target_, last, target_norm_, target_output_);
}

Status Eagle3Head::write(const std::string& folder, const std::string& algorithm, int depth) const {
  const ModelConfig& config = target_->config();
  const LayerShape& shape = layers_.front().shape;
  const Json layer = {
      {"model_type", "llama"},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"hidden_act", "silu"},
      {"hidden_size", shape.hidden},
      {"intermediate_size", shape.intermediate},
      {"num_attention_heads", shape.heads},
      {"num_key_value_heads", shape.kv_heads},
      {"head_dim", shape.head_dim},
      {"num_hidden_layers", options_.layers},
      {"max_position_embeddings", options_.context},
      {"rms_norm_eps", norm_eps_},
      {"rope_theta", target_->rope_base()},
      {"rope_parameters", {{"rope_theta", target_->rope_base()}, {"rope_type", "default"}}},
      {"tie_word_embeddings", false},
      {"vocab_size", config.vocab},
  };
  Json verifier = {{"name_or_path", target_->path()}, {"architectures", Json::array()}};
  const std::string_view class_name = transformers_class(*target_->source().file, config);
  if (!class_name.empty()) verifier["architectures"].push_back(class_name);
  Json out = {
      {"architectures", {options_.mask ? "PEagleDraftModel" : "Eagle3DraftModel"}},
      {"speculators_model_type", algorithm},
      {"draft_vocab_size", draft_ids_.size(0)},
      {"dtype", "float32"},
      {"eagle_aux_hidden_state_layer_ids", options_.tap_layers},
      {"embed_requires_grad", options_.train_embedding},
      {"fc_norm", options_.fc_norm},
      {"norm_before_fc", false},
      {"norm_before_residual", options_.norm_before_residual},
      {"norm_output", options_.norm_output},
      {"target_hidden_size", nullptr},
      {"tie_word_embeddings", false},
      {"speculators_config",
       {{"algorithm", algorithm},
        {"default_proposal_method", "greedy"},
        {"proposal_methods",
         {{{"proposal_type", "greedy"},
           {"speculative_tokens", depth},
           {"verifier_accept_k", 1},
           {"accept_tolerance", 0.0}}}},
        {"verifier", verifier}}},
      {"transformer_layer_config", layer},
  };
  if (options_.mask) out["mask_token_id"] = options_.mask_token;
  return write_checkpoint(folder, stored_parameters(parameters_, false), out);
}

}  // namespace aerie::train

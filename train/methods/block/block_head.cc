#include "train/methods/block/block_head.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "draft/heads/block_config.h"
#include "train/methods/head_config.h"
#include "train/methods/peagle/peagle_attention.h"
#include "train/nn/ops.h"
#include "train/run/checkpoint_files.h"

namespace aerie::train {
namespace {

constexpr int64_t kMostDepth = 64;

template <typename... Args>
Status refuse_block(fmt::format_string<Args...> what, Args&&... args) {
  return {StatusCode::kInvalidArgument, fmt::format(what, std::forward<Args>(args)...)};
}

}  // namespace

void BlockHeadOptions::add_to(SettingList& settings) {
  settings.add("tap-layers", tap_layers,
               "Layers whose input is read, separated by commas (default: as many as the head has "
               "layers, evenly spread)");
  settings.add_draft_vocab(vocabulary);
  settings.add("layers", layers, {1, 64}, "Layers of the head");
  settings.add("depth", depth, {1, 64}, "Tokens of a draft, all from one pass");
  settings.add("mask-token", mask_token,
               "The token that stands for what is not known yet; -1: the last one");
  settings.add_intermediate(intermediate);
}

Status BlockHead::fill_in(const Target& target) {
  const ModelConfig& config = target.config();
  if (options_.spark && options_.markov_rank < 1) {
    return refuse_block("a Markov head of rank {}: it is 1 or more", options_.markov_rank);
  }
  if (options_.depth < 1 || options_.depth > kMostDepth || options_.layers < 1) {
    return refuse_block(
        "blocks of {} tokens from {} layers: 1 to {} tokens from at least one can be "
        "trained",
        options_.depth, options_.layers, kMostDepth);
  }
  if (options_.tap_layers.empty()) {
    options_.tap_layers = usual_block_taps(config.layers, static_cast<int>(options_.layers));
  }
  for (const int32_t layer : options_.tap_layers) {
    if (layer >= 0 && layer < config.layers) continue;
    return refuse_block("layer {} cannot be tapped: {} has 0 to {}", layer, target.path(),
                        config.layers - 1);
  }
  if (options_.mask_token < 0) options_.mask_token = config.vocab - 1;
  if (options_.mask_token >= config.vocab) {
    return refuse_block("the mask token {} is none of the model's {}", options_.mask_token,
                        config.vocab);
  }
  return {};
}

// Of a pruned vocabulary the rows of the output matrix are stored.
Status BlockHead::take_from_target(Target& target) {
  AERIE_ASSIGN_OR_RETURN(embedding_, target.embedding());
  AERIE_ASSIGN_OR_RETURN(target_norm_, target.final_norm());
  AERIE_ASSIGN_OR_RETURN(output_, target.output());
  AERIE_ASSIGN_OR_RETURN(draft_ids_, target.draft_ids(options_.vocabulary));
  if (options_.vocabulary.empty()) return {};
  output_ = output_.index_select(0, draft_ids_);
  parameters_.add_draft_ids(draft_ids_);
  parameters_.add_fixed("lm_head.weight", output_);
  return {};
}

Expected<BlockHead> BlockHead::create(Target& target, const BlockHeadOptions& options,
                                      at::Generator& generator) {
  BlockHead head;
  head.target_ = &target;
  head.options_ = options;
  AERIE_RETURN_IF_ERROR(head.fill_in(target));
  AERIE_RETURN_IF_ERROR(head.take_from_target(target));
  const auto device = head.embedding_.device();
  const int64_t width = target.config().hidden;
  const auto taps = static_cast<int64_t>(head.options_.tap_layers.size());
  Parameters& parameters = head.parameters_;
  head.fc_ = parameters.add("fc.weight", random_matrix(width, taps * width, generator).to(device));
  head.context_norm_ = parameters.add("hidden_norm.weight", at::ones({width}, device));
  LayerShape shape = head_layer_shape(target, options.intermediate);
  shape.head_norms = true;
  for (int64_t i = 0; i < options.layers; ++i) {
    head.layers_.push_back(LlamaLayer::create(parameters, fmt::format("layers.{}", i), shape, true,
                                              device, generator));
  }
  head.output_norm_ = parameters.add("norm.weight", head.target_norm_.clone());
  if (options.spark) head.add_spark(generator);
  return head;
}

// The Markov head begins as nothing, the confidence head as one that knows nothing.
void BlockHead::add_spark(at::Generator& generator) {
  const auto device = embedding_.device();
  const int64_t width = layers_.front().shape.hidden, rank = options_.markov_rank;
  const at::Tensor tokens = at::randn({embedding_.size(0), rank}, generator);
  markov_in_ = parameters_.add("markov_head.markov_w1.weight", tokens.to(device));
  markov_out_ =
      parameters_.add("markov_head.markov_w2.weight", at::zeros({output_.size(0), rank}, device));
  confidence_ =
      parameters_.add("confidence_head.proj.weight", at::zeros({1, width + rank}, device));
  confidence_bias_ = parameters_.add("confidence_head.proj.bias", at::zeros({1}, device));
}

at::Tensor BlockHead::logits(const at::Tensor& drafts, const at::Tensor& before) const {
  const at::Tensor logits = at::linear(drafts, output_);
  if (!options_.spark) return logits;
  return logits + at::linear(at::embedding(markov_in_, before), markov_out_);
}

at::Tensor BlockHead::confidence(const at::Tensor& drafts, const at::Tensor& before) const {
  const at::Tensor seen = at::cat({drafts, at::embedding(markov_in_, before)}, 1);
  return at::linear(seen, confidence_, confidence_bias_).squeeze(1);
}

at::Tensor BlockHead::drafts(const Batch& batch, const at::Tensor& anchors) const {
  const at::Tensor on_cpu = anchors.to(at::kCPU).contiguous();
  const int64_t* first = on_cpu.data_ptr<int64_t>();
  const int64_t blocks = anchors.size(0), each = rows_of_block();
  const Chains chains = {{first, first + blocks},
                         std::vector<int64_t>(static_cast<size_t>(blocks), each)};
  const ElementRows rows =
      chain_rows(batch.documents, chains, 0, blocks, batch.tokens.device(), true);
  const double eps = layers_.front().shape.norm_eps;
  const auto rotary = [&](const at::Tensor& positions) {
    return make_rotary(positions, layers_.front().shape.head_dim, target_->rope_base());
  };
  const at::Tensor context = rms_norm(at::linear(batch.taps, fc_), context_norm_, eps);
  const Rotary of_context = rotary(batch.positions);
  const Rotary of_block = rotary(batch.positions.index_select(0, rows.anchors) + rows.depths);

  at::Tensor tokens = at::full({blocks, each}, options_.mask_token, batch.tokens.options());
  tokens.select(1, 0).copy_(batch.tokens.index_select(0, anchors + 1));
  at::Tensor x = embedding_.index_select(0, tokens.view({-1}));
  for (const LlamaLayer& layer : layers_) {
    const Projections p = layer.project(rms_norm(x, layer.input_norm, eps), of_block);
    const Keys seen = {layer.keys(context, of_context), layer.values(context)};
    x = layer.feed_forward(x + layer.output(attend_elements(p.q, seen, {p.k, p.v}, rows)));
  }
  // DFlash's row of the root drafts nothing.
  const int64_t width = x.size(1), depth = options_.depth;
  x = x.view({blocks, each, width}).narrow(1, each - depth, depth).reshape({-1, width});
  return rms_norm(x, output_norm_, eps);
}

at::Tensor BlockHead::wanted_logits(const at::Tensor& last) const {
  const at::NoGradGuard no_grad;
  return target_logits(*target_, last, target_norm_, output_);
}

Status BlockHead::write(const std::string& folder) const {
  std::vector<int32_t> left;  // layers that the taps leave
  for (const int32_t layer : options_.tap_layers) left.push_back(layer - 1);
  Json out = head_layer_config(*target_, layers_.front().shape, options_.context);
  out["architectures"] = {options_.spark ? "Qwen3DSparkModel" : "DFlashDraftModel"};
  out["model_type"] = "qwen3";
  out["attention_bias"] = false;
  out["num_hidden_layers"] = options_.layers;
  out["num_target_layers"] = target_->config().layers;
  out["block_size"] = rows_of_block();
  const Json own = {{"mask_token_id", options_.mask_token}, {"target_layer_ids", left}};
  if (options_.spark) {
    out.update(own);
    out["markov_rank"] = options_.markov_rank;
    out["markov_head_type"] = "vanilla";
    out["enable_confidence_head"] = true;
    out["confidence_head_with_markov"] = true;
  } else {
    out["dflash_config"] = own;
  }
  if (!options_.vocabulary.empty()) out["draft_vocab_size"] = draft_ids_.size(0);
  return write_checkpoint(folder, stored_parameters(parameters_, false), out);
}

}  // namespace aerie::train

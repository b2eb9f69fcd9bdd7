#include "train/methods/eagle/eagle_head.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "train/methods/head_config.h"
#include "train/methods/pass_attention.h"
#include "train/methods/row_chunks.h"
#include "train/nn/losses.h"
#include "train/nn/ops.h"
#include "train/run/checkpoint_files.h"

namespace aerie::train {
namespace {

// - sum p log q over the tokens that are likeliest by p: [rows].
at::Tensor top_cross_entropy(const at::Tensor& target_logits, const at::Tensor& draft_logits,
                             int64_t tokens) {
  const auto [p, ids] = target_logits.softmax(-1).topk(std::min(tokens, target_logits.size(-1)));
  return -(p * draft_logits.log_softmax(-1).gather(-1, ids)).sum(-1);
}

}  // namespace

Expected<EagleHead> EagleHead::create(Target& target, const EagleHeadOptions& options,
                                      at::Generator& generator) {
  if (options.intermediate < 0 || options.context < 1) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("an EAGLE head of {} values in its feed-forward for {} positions: "
                              "there are to be at least 0 (the target's) and 1",
                              options.intermediate, options.context));
  }
  EagleHead head;
  head.target_ = &target;
  head.options_ = options;
  AERIE_ASSIGN_OR_RETURN(head.embedding_, target.embedding());
  AERIE_ASSIGN_OR_RETURN(head.target_norm_, target.final_norm());
  AERIE_ASSIGN_OR_RETURN(head.output_, target.output());
  const auto device = head.embedding_.device();
  const LayerShape shape = head_layer_shape(target, options.intermediate);
  const int64_t width = shape.hidden;
  Parameters& parameters = head.parameters_;
  head.fc_ = parameters.add("fc.weight", random_matrix(width, 2 * width, generator).to(device));
  if (options.bias) head.fc_bias_ = parameters.add("fc.bias", at::zeros({width}, device));
  head.layer_ = LlamaLayer::create(parameters, "layers.0", shape, false, device, generator);
  return head;
}

at::Tensor EagleHead::true_features(const Batch& batch) const {
  return rms_norm(batch.last, target_norm_, target_->norm_eps());
}

at::Tensor EagleHead::enter(const at::Tensor& embedded, const at::Tensor& features) const {
  const at::Tensor z = at::linear(at::cat({embedded, features}, 1), fc_);
  return fc_bias_.defined() ? z + fc_bias_ : z;
}

at::Tensor EagleHead::forward(const Batch& batch, std::span<const at::Tensor> passes) const {
  const at::Tensor embedded = embedding_.index_select(0, batch.shifted(batch.tokens, 1));
  const Rotary rotary = make_rotary(batch.positions, layer_.shape.head_dim, target_->rope_base());
  at::Tensor stream, queries;
  std::vector<OwnEntry> entries;
  entries.reserve(passes.size());
  for (const at::Tensor& features : passes) {
    stream = enter(embedded, features);
    const Projections p = layer_.project(stream, rotary);
    queries = p.q;
    entries.push_back({p.k, p.v});
  }
  const at::Tensor attended = attend_passes(queries, entries, batch.documents);
  return layer_.feed_forward(stream + layer_.output(attended));
}

double EagleHead::learn(const Batch& batch, const at::Tensor& outputs, const at::Tensor& places,
                        const EagleLoss& loss, double scale, int pass, Figures& figures) const {
  const at::Tensor drafted = outputs.index_select(0, places);
  const at::Tensor last = batch.last.index_select(0, places + 1);
  const at::Tensor tokens = batch.tokens.index_select(0, places + 2);
  const at::Tensor features = rms_norm(last, target_norm_, target_->norm_eps());
  double feature_sum = 0.0, token_sum = 0.0, top_sum = 0.0, hits = 0.0;
  const auto loss_of = [&](const at::Tensor& part, int64_t begin) {
    const int64_t rows = part.size(0);
    const at::Tensor wanted =
        target_logits(*target_, last.narrow(0, begin, rows), target_norm_, output_);
    const at::Tensor logits = at::linear(part, output_);
    const at::Tensor feature = smooth_l1_rows(part, features.narrow(0, begin, rows)).sum();
    // Less than the cross entropy by the target's own entropy, which has no gradient.
    const at::Tensor token = divergence(Divergence::kForwardKl, wanted, logits).sum();
    at::Tensor total = feature * loss.feature + token * loss.token;
    if (loss.top != 0.0) {
      const at::Tensor top = top_cross_entropy(wanted, logits, loss.top_tokens).sum();
      total = total + top * loss.top;
      top_sum += top.item<double>();
    }
    feature_sum += feature.item<double>();
    token_sum += token.item<double>();
    hits += logits.argmax(-1).eq(tokens.narrow(0, begin, rows)).sum().item<double>();
    return total;
  };
  const at::Tensor gradient = loss_in_chunks(drafted, scale, loss_of);
  if (gradient.defined()) drafted.backward(gradient);
  figures.add(fmt::format("feature_{}", pass), feature_sum);
  figures.add(fmt::format("token_{}", pass), token_sum);
  if (loss.top != 0.0) figures.add(fmt::format("top_{}", pass), top_sum);
  figures.add(fmt::format("hits_{}", pass), hits);
  figures.add(fmt::format("rows_{}", pass), static_cast<double>(places.size(0)));
  return feature_sum * loss.feature + token_sum * loss.token + top_sum * loss.top;
}

Status EagleHead::write(const std::string& folder) const {
  std::vector<StoredTensor> tensors = stored_parameters(parameters_, false);
  if (options_.store_embedding) tensors.push_back({"embed_tokens.weight", embedding_});
  Json config = head_layer_config(*target_, layer_.shape, options_.context);
  config["architectures"] = {"LlamaForCausalLM"};
  config["model_type"] = "llama";
  config["num_hidden_layers"] = 1;
  config["bias"] = options_.bias;
  return write_checkpoint(folder, tensors, config);
}

}  // namespace aerie::train

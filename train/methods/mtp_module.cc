#include "train/methods/mtp_module.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "train/methods/head_config.h"
#include "train/run/checkpoint_files.h"

namespace aerie::train {
namespace {

// Behind the model's own layers, where DeepSeek's files have it.
std::string prefix_of(const Target& target) {
  return fmt::format("model.layers.{}", target.config().layers);
}

}  // namespace

Expected<MtpModule> MtpModule::create(Target& target, const MtpModuleOptions& options,
                                      at::Generator& generator) {
  if (options.intermediate < 0 || options.context < 1) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("a module of {} values in its feed-forward for {} positions: there "
                              "are to be at least 0 (the target's) and 1",
                              options.intermediate, options.context));
  }
  MtpModule module;
  module.target_ = &target;
  module.options_ = options;
  AERIE_ASSIGN_OR_RETURN(module.embedding_, target.embedding());
  AERIE_ASSIGN_OR_RETURN(module.target_norm_, target.final_norm());
  AERIE_ASSIGN_OR_RETURN(module.output_, target.output());
  const auto device = module.embedding_.device();
  const LayerShape shape = head_layer_shape(target, options.intermediate);
  const int64_t width = shape.hidden;
  const std::string prefix = prefix_of(target);
  Parameters& parameters = module.parameters_;
  const auto norm = [&](const char* name) {
    return parameters.add(prefix + name, at::ones({width}, device));
  };
  module.embedding_norm_ = norm(".enorm.weight");
  module.hidden_norm_ = norm(".hnorm.weight");
  module.project_ = parameters.add(prefix + ".eh_proj.weight",
                                   random_matrix(width, 2 * width, generator).to(device));
  module.layer_ = LlamaLayer::create(parameters, prefix, shape, true, device, generator);
  module.output_norm_ =
      parameters.add(prefix + ".shared_head.norm.weight", module.target_norm_.clone());
  return module;
}

MtpModule::State MtpModule::begin(const Batch& batch) const {
  State state;
  state.rows = at::arange(batch.documents.rows(), batch.tokens.options());
  state.handed = options_.feature_normed ? rms_norm(batch.last, target_norm_, target_->norm_eps())
                                         : batch.last;
  return state;
}

at::Tensor MtpModule::step(const Batch& batch, State& state) const {
  const double eps = target_->norm_eps();
  const at::Tensor tokens = batch.shifted(batch.tokens, state.step + 1).index_select(0, state.rows);
  const at::Tensor positions = batch.positions.index_select(0, state.rows) + state.step;
  at::Tensor embedded = embedding_.index_select(0, tokens);
  if (state.step == 0) embedded = embedded * positions.ne(0).unsqueeze(1);
  const at::Tensor z = at::linear(
      at::cat({rms_norm(embedded, embedding_norm_, eps), rms_norm(state.handed, hidden_norm_, eps)},
              1),
      project_);
  const Rotary rotary = make_rotary(positions, layer_.shape.head_dim, target_->rope_base());
  const Projections p = layer_.project(rms_norm(z, layer_.input_norm, eps), rotary);
  at::Tensor attended;
  if (state.step == 0) {
    state.keys = p.k;
    state.values = p.v;
    attended = attend(p.q, p.k, p.v, batch.documents);
  } else {
    state.own.push_back({p.k, p.v});
    attended = attend_from(p.q, query_rows(batch.documents, state.rows), state.keys, state.values,
                           batch.documents, state.own);
  }
  const at::Tensor stream = layer_.feed_forward(z + layer_.output(attended));
  state.handed = options_.handed_normed ? rms_norm(stream, output_norm_, eps) : stream;
  ++state.step;
  return stream;
}

void MtpModule::narrow(State& state, const at::Tensor& places) {
  state.rows = state.rows.index_select(0, places);
  state.handed = state.handed.index_select(0, places);
  for (OwnEntry& entry : state.own) {
    entry = {entry.k.index_select(0, places), entry.v.index_select(0, places)};
  }
}

at::Tensor MtpModule::logits(const at::Tensor& stream) const {
  return at::linear(rms_norm(stream, output_norm_, target_->norm_eps()), output_);
}

at::Tensor MtpModule::wanted_logits(const at::Tensor& last) const {
  return target_logits(*target_, last, target_norm_, output_);
}

Status MtpModule::write(const std::string& folder) const {
  std::vector<StoredTensor> tensors = stored_parameters(parameters_, false);
  if (options_.store_tables) {
    tensors.push_back({prefix_of(*target_) + ".embed_tokens.weight", embedding_});
    tensors.push_back({prefix_of(*target_) + ".shared_head.head.weight", output_});
  }
  Json config = head_layer_config(*target_, layer_.shape, options_.context);
  config["architectures"] = {"DeepseekV3ForCausalLM"};
  config["model_type"] = "deepseek_v3";
  config["num_hidden_layers"] = target_->config().layers;
  config["num_nextn_predict_layers"] = 1;
  return write_checkpoint(folder, tensors, config);
}

}  // namespace aerie::train

#include "train/methods/offset/hydra_method.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "format/json.h"
#include "train/methods/offset/affine.h"
#include "train/methods/training_methods.h"
#include "train/nn/llama_layer.h"
#include "train/nn/llama_model.h"
#include "train/nn/ops.h"
#include "train/run/checkpoint_files.h"

namespace aerie::train {

extern const TrainingMethod kHydraTraining;

namespace {

constexpr const char* kPrefix = "prefix_embeding_layer";  // spelt as the published files do

struct Head {
  Affine narrow, around;  // the first block
  std::vector<Affine> blocks;
  Affine output;
};

struct Prefix {
  LlamaLayer layer;
  at::Tensor norm;
  double rope_base = 0.0;
};

// Of one call of accumulate().
struct Pass {
  at::Tensor h;         // what heads see of the target: [rows, hidden]
  at::Tensor embedded;  // of the batch's tokens: [rows, hidden]
  double dropout = 0.0;
  at::Generator* generator = nullptr;

  at::Tensor dropped(const at::Tensor& x) const {
    if (dropout == 0.0) return x;
    // Drawn on the CPU, so that it is the same for every device.
    const at::Tensor kept =
        at::empty(x.sizes(), at::kFloat).bernoulli_(1.0 - dropout, *generator).to(x.device());
    return x * kept / (1.0 - dropout);
  }
};

class Hydra final : public Method {
 public:
  static Expected<std::unique_ptr<Method>> make(Target& target, const HydraOptions& options,
                                                OffsetHeads offsets, at::Generator& generator);

  const MethodNeeds& needs() const override { return needs_; }
  Parameters& parameters() override { return parameters_; }
  double weight(const Batch& batch) const override { return offsets_.weight(batch); }
  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) override;
  Status write(const std::string& folder) const override;
  DraftSettings settings() const override {
    return DraftSettings::of(kHydraTraining.drafter, options_.heads);
  }

 private:
  Hydra(Target& target, const HydraOptions& options, OffsetHeads offsets)
      : target_(target), options_(options), offsets_(std::move(offsets)) {
    needs_.last = true;
  }
  Affine add(const std::string& name, const at::Tensor& weight) {
    return Affine::add(parameters_, name, weight);
  }
  // In files with a prefix the numbers count a dropout before each block and output.
  std::string block_name(int head, int block) const {
    return fmt::format("hydra_mlp.{}.{}", head, options_.prefix ? 2 * block + 1 : block);
  }
  void add_head(int index);
  Status add_prefix(at::Generator& generator);
  OffsetHeads::Output forward(int head, const at::Tensor& rows, const Pass& pass) const;
  at::Tensor prefixed(const Batch& batch, const at::Tensor& states) const;
  Json config() const;

  Target& target_;
  HydraOptions options_;
  OffsetHeads offsets_;
  MethodNeeds needs_;
  Parameters parameters_;
  at::Tensor embedding_;
  std::vector<Head> heads_;
  std::optional<Prefix> prefix_;
};

Expected<std::unique_ptr<Method>> Hydra::make(Target& target, const HydraOptions& options,
                                              OffsetHeads offsets, at::Generator& generator) {
  std::unique_ptr<Hydra> hydra(new Hydra(target, options, std::move(offsets)));
  AERIE_ASSIGN_OR_RETURN(hydra->embedding_, target.embedding());
  if (const at::Tensor& ids = hydra->offsets_.draft_ids(); ids.defined()) {
    hydra->parameters_.add_draft_ids(ids);
  }
  if (options.prefix) AERIE_RETURN_IF_ERROR(hydra->add_prefix(generator));
  for (int i = 0; i < options.heads; ++i) hydra->add_head(i);
  return std::unique_ptr<Method>(std::move(hydra));
}

void Hydra::add_head(int index) {
  const at::Tensor& rows = offsets_.target_rows();
  const int64_t hidden = rows.size(1), input = (index + 2) * hidden;
  const at::TensorOptions options = rows.options();
  Head& head = heads_.emplace_back();
  const std::string first = block_name(index, 0);
  head.narrow = add(first + ".linear", at::zeros({hidden, input}, options));
  head.around = add(first + ".res_connection", at::eye(hidden, input, options));
  for (int j = 1; j < options_.blocks; ++j) {
    head.blocks.push_back(
        add(block_name(index, j) + ".linear", at::zeros({hidden, hidden}, options)));
  }
  head.output =
      add(fmt::format("hydra_lm_head.{}{}", index, options_.prefix ? ".1" : ""), rows.clone());
}

Status Hydra::add_prefix(at::Generator& generator) {
  AERIE_ASSIGN_OR_RETURN(const LlamaShape shape, llama_shape(target_));
  AERIE_ASSIGN_OR_RETURN(const at::Tensor norm, target_.final_norm());
  Prefix& prefix = prefix_.emplace();
  prefix.layer = LlamaLayer::create(parameters_, fmt::format("{}.layers.0", kPrefix), shape.layer,
                                    true, norm.device(), generator);
  // The target's states come normed; behind another norm they keep their size.
  const at::Tensor size = norm.square().mean().sqrt();
  prefix.norm = parameters_.add(fmt::format("{}.norm.weight", kPrefix), at::ones_like(norm) * size);
  prefix.rope_base = shape.rope_base;
  return {};
}

at::Tensor Hydra::prefixed(const Batch& batch, const at::Tensor& states) const {
  const LlamaLayer& layer = prefix_->layer;
  const Rotary rotary = make_rotary(batch.positions, layer.shape.head_dim, prefix_->rope_base);
  return rms_norm(layer.forward(states, rotary, batch.documents), prefix_->norm,
                  layer.shape.norm_eps);
}

OffsetHeads::Output Hydra::forward(int head, const at::Tensor& rows, const Pass& pass) const {
  const Head& own = heads_[static_cast<size_t>(head)];
  std::vector<at::Tensor> parts = {pass.h.index_select(0, rows)};
  for (int i = 0; i <= head; ++i) {
    parts.push_back(pass.embedded.index_select(0, rows + (1 + i)));
  }
  const at::Tensor input = pass.dropped(at::cat(parts, 1));
  at::Tensor x = own.around(input) + at::silu(own.narrow(input));
  for (const Affine& block : own.blocks) {
    x = pass.dropped(x);
    x = x + at::silu(block(x));
  }
  return {own.output(pass.dropped(x)), x};
}

Expected<Figures> Hydra::accumulate(const Batch& batch, double scale, at::Generator& generator,
                                    bool train) {
  const at::AutoGradMode gradients(train);
  const at::Tensor states = offsets_.states(batch);
  Pass pass;
  pass.embedded = embedding_.index_select(0, batch.tokens);
  pass.dropout = train ? options_.dropout : 0.0;
  pass.generator = &generator;
  const at::Tensor h = prefix_ ? prefixed(batch, states) : states;
  // The heads' gradients are taken part by part and meet here, so that they pass the prefix once.
  pass.h = h.detach();
  if (train && prefix_) pass.h.set_requires_grad(true);
  AERIE_ASSIGN_OR_RETURN(
      const Figures figures,
      offsets_.accumulate(batch, states, scale, train,
                          [&](int head, const at::Tensor& rows) -> Expected<OffsetHeads::Output> {
                            return forward(head, rows, pass);
                          }));
  if (pass.h.requires_grad() && pass.h.grad().defined()) h.backward(pass.h.grad());
  return figures;
}

Json Hydra::config() const {
  Json config = Json::object();
  config["hydra_head_arch"] = options_.prefix ? "prefix-mlp" : "mlp";
  config["hydra_num_heads"] = options_.heads;
  config["hydra_num_layers"] = options_.blocks;
  config["grounded_heads"] = true;
  config["hidden_state_offset"] = 0;
  return config;
}

Status Hydra::write(const std::string& folder) const {
  return write_checkpoint(folder, stored_parameters(parameters_, options_.bf16), config());
}

MakeMethod declare_hydra(SettingList& settings) {
  struct Given {
    HydraOptions options;
    bool plus_plus = false;
  };
  const auto given = std::make_shared<Given>();
  HydraOptions& o = given->options;
  add_head_shape(settings, o.heads, o.blocks, o.bf16, o.vocabulary);
  settings
      .add("plus-plus", given->plus_plus,
           "Hydra++: a prefix layer, four blocks, the target's distribution as teacher")
      .excludes = {"heads", "blocks"};
  settings.add("prefix", o.prefix, "A layer of a Llama over the target's states first").excludes = {
      "plus-plus"};
  settings.add("dropout", o.dropout, "In the heads").excludes = {"plus-plus"};
  add_offset_loss(settings, o.loss, {"plus-plus"});
  settings.add("feature-weight", o.loss.features, "Weighs the distance of features").excludes = {
      "plus-plus"};
  return [given](const MethodInputs& inputs) {
    HydraOptions options = given->plus_plus ? HydraOptions::plus_plus() : given->options;
    options.bf16 = given->options.bf16;
    options.loss.divergence = given->options.loss.divergence;
    options.vocabulary = given->options.vocabulary;
    return make_hydra(inputs.target, options, inputs.generator);
  };
}

}  // namespace

HydraOptions HydraOptions::plus_plus() {
  HydraOptions options;
  options.blocks = 4;
  options.prefix = true;
  options.dropout = 0.2;
  options.loss.labels = 0.0;
  options.loss.teacher = 1.0;
  return options;
}

Expected<std::unique_ptr<Method>> make_hydra(Target& target, const HydraOptions& options,
                                             at::Generator& generator) {
  if (!(options.dropout >= 0.0 && options.dropout < 1.0)) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("a dropout of {}: it must be at least 0 and below 1", options.dropout));
  }
  OffsetHeadsOptions offsets;
  offsets.heads = options.heads;
  offsets.blocks = options.blocks;
  offsets.vocabulary = options.vocabulary;
  offsets.loss = options.loss;
  AERIE_ASSIGN_OR_RETURN(OffsetHeads heads, OffsetHeads::create(target, offsets));
  return Hydra::make(target, options, std::move(heads), generator);
}

constinit const TrainingMethod kHydraTraining = {
    .name = "hydra",
    .what = "Hydra: heads that see the tokens drafted before theirs",
    .drafter = "hydra",
    .schedule = {.rate = 5e-4, .warmup = 0.02, .floor = 0.33},
    .adamw = {.weight_decay = 0.1},
    .declare = declare_hydra,
};

}  // namespace aerie::train

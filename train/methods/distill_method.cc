#include "train/methods/distill_method.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "train/methods/row_chunks.h"
#include "train/methods/supervision.h"
#include "train/methods/training_methods.h"
#include "train/run/checkpoint_files.h"

namespace aerie::train {

extern const TrainingMethod kDistillTraining;

namespace {

class Distill final : public Method {
 public:
  Distill(const Target& target, const DistillOptions& options)
      : target_(target), options_(options) {}
  Status start(Target& target, at::Generator& generator);

  const MethodNeeds& needs() const override { return needs_; }
  Parameters& parameters() override { return parameters_; }
  double weight(const Batch& batch) const override {
    return supervised_next(batch).sum().item<double>();
  }
  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) override;
  Status write(const std::string& folder) const override;
  DraftSettings settings() const override {
    return DraftSettings::of(kDistillTraining.drafter, options_.depth);
  }

 private:
  at::Tensor learn(const at::Tensor& stream, const at::Tensor& last, const at::Tensor& next,
                   double scale, Figures& figures) const;
  at::Tensor accepted(const at::Tensor& last, const at::Tensor& logits) const;

  const Target& target_;
  DistillOptions options_;
  MethodNeeds needs_ = {{}, true};
  Parameters parameters_;
  LlamaModel model_;
  at::Tensor ids_;   // int64 [drafted]: the target's ids of the model's rows
  at::Tensor rows_;  // int64 [target's tokens]: the row as which each is read
  at::Tensor norm_, output_, drafted_output_;  // the target's
};

Status check(const DistillOptions& options) {
  if (!options.shape) return {};
  const LayerShape& shape = options.shape->layer;
  const bool sound = options.shape->layers > 0 && shape.hidden > 0 && shape.intermediate > 0 &&
                     shape.heads > 0 && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0 &&
                     shape.head_dim > 0 && shape.head_dim % 2 == 0 && shape.attention_input == 0;
  if (sound) return {};
  return {StatusCode::kInvalidArgument,
          fmt::format("no Llama has {} layers of width {} and {}, {} heads of {}, {} for keys",
                      options.shape->layers, shape.hidden, shape.intermediate, shape.heads,
                      shape.head_dim, shape.kv_heads)};
}

Status Distill::start(Target& target, at::Generator& generator) {
  AERIE_RETURN_IF_ERROR(check(options_));
  AERIE_ASSIGN_OR_RETURN(norm_, target.final_norm());
  AERIE_ASSIGN_OR_RETURN(output_, target.output());
  const at::Device device = output_.device();
  const bool pruned = !options_.vocabulary.empty();
  AERIE_ASSIGN_OR_RETURN(ids_, target.draft_ids(options_.vocabulary));
  const int64_t drafted = ids_.size(0);
  const at::Tensor places = at::arange(drafted, ids_.options());
  rows_ = at::full({target.config().vocab}, drafted, ids_.options()).index_copy_(0, ids_, places);
  parameters_.add_draft_ids(ids_);
  drafted_output_ = pruned ? output_.index_select(0, ids_) : output_;
  if (options_.shape) {
    LlamaShape shape = *options_.shape;
    shape.vocab = drafted + (pruned ? 1 : 0);
    model_ = LlamaModel::create(parameters_, shape, device, generator);
    return {};
  }
  LlamaCut cut;
  AERIE_ASSIGN_OR_RETURN(cut.layers, parse_cut_layers(options_.layers, target.config().layers));
  if (pruned) cut.tokens = ids_;
  cut.extra_rows = pruned ? 1 : 0;
  cut.tied = options_.tied;
  AERIE_ASSIGN_OR_RETURN(model_, LlamaModel::cut(parameters_, target, cut));
  return {};
}

// sum min(p, q) for each row, p over all of the target's tokens.
at::Tensor Distill::accepted(const at::Tensor& last, const at::Tensor& logits) const {
  const at::Tensor p = target_logits(target_, last, norm_, output_).softmax(-1);
  return at::minimum(p.index_select(1, ids_), logits.softmax(-1)).sum(-1);
}

// Of supervised rows: the model's stream, the target's, and the tokens that came. The gradient of
// the stream.
at::Tensor Distill::learn(const at::Tensor& stream, const at::Tensor& last, const at::Tensor& next,
                          double scale, Figures& figures) const {
  double loss_sum = 0.0, hits = 0.0, acceptance = 0.0;
  const bool train = at::GradMode::is_enabled();
  const at::Tensor gradient =
      loss_in_chunks(stream, scale, [&](const at::Tensor& part, int64_t begin) {
        const at::Tensor theirs = last.narrow(0, begin, part.size(0));
        const at::Tensor logits = model_.logits(part).narrow(1, 0, ids_.size(0));
        const at::Tensor wanted = target_logits(target_, theirs, norm_, drafted_output_);
        const at::Tensor loss = divergence(options_.loss, wanted, logits).sum();
        loss_sum += loss.item<double>();
        const at::Tensor likeliest = ids_.index_select(0, logits.detach().argmax(-1));
        hits += likeliest.eq(next.narrow(0, begin, part.size(0))).sum().item<double>();
        if (!train) acceptance += accepted(theirs, logits).sum().item<double>();
        return loss;
      });
  figures.add("loss", loss_sum);
  figures.add("hits", hits);
  if (!train) figures.add("acceptance", acceptance);
  return gradient;
}

Expected<Figures> Distill::accumulate(const Batch& batch, double scale, at::Generator& /*none*/,
                                      bool train) {
  const at::AutoGradMode gradients(train);
  const at::Tensor rows = places_of(supervised_next(batch));
  Figures figures;
  figures.weight = static_cast<double>(rows.size(0));
  if (rows.size(0) == 0) {
    figures.add("loss", 0.0);
    return figures;
  }
  const at::Tensor tokens = rows_.index_select(0, batch.tokens);
  const at::Tensor stream =
      model_.forward(tokens, batch.positions, batch.documents).back().index_select(0, rows);
  const at::Tensor gradient = learn(stream, batch.last.index_select(0, rows),
                                    batch.tokens.index_select(0, rows + 1), scale, figures);
  if (train) stream.backward(gradient);
  return figures;
}

Status Distill::write(const std::string& folder) const {
  const LlamaShape& shape = model_.shape();
  const Json config = {
      {"architectures", {"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"hidden_act", "silu"},
      {"hidden_size", shape.layer.hidden},
      {"intermediate_size", shape.layer.intermediate},
      {"num_attention_heads", shape.layer.heads},
      {"num_key_value_heads", shape.layer.kv_heads},
      {"head_dim", shape.layer.head_dim},
      {"num_hidden_layers", shape.layers},
      {"max_position_embeddings", target_.config().context},
      {"rms_norm_eps", shape.layer.norm_eps},
      {"rope_theta", shape.rope_base},
      {"tie_word_embeddings", shape.tied},
      {"torch_dtype", "float32"},
      {"vocab_size", shape.vocab},
      {"target_vocab_size", target_.config().vocab},
  };
  return write_checkpoint(folder, stored_parameters(parameters_, false), config);
}

// Of a model that begins at random; 0: by the others.
struct RandomShape {
  int64_t hidden = 0, layers = 2, heads = 0, kv_heads = 0, ffn = 0;

  LlamaShape of(const Target& target) const {
    const auto or_else = [](int64_t value, int64_t otherwise) {
      return value == 0 ? otherwise : value;
    };
    const ModelConfig& config = target.config();
    LlamaShape shape;
    shape.layers = layers;
    shape.vocab = config.vocab;
    shape.rope_base = target.rope_base();
    shape.layer.hidden = hidden;
    shape.layer.head_dim = config.head_dim;
    shape.layer.heads = or_else(heads, std::max<int64_t>(1, hidden / config.head_dim));
    shape.layer.kv_heads = or_else(kv_heads, shape.layer.heads);
    shape.layer.intermediate = or_else(ffn, hidden * 8 / 3 / 32 * 32);
    shape.layer.norm_eps = target.norm_eps();
    return shape;
  }
};

void add_shape(SettingList& settings, RandomShape& shape) {
  constexpr Setting::Range kSizes = {1, 1 << 20};
  Setting& hidden =
      settings.add("hidden", shape.hidden, kSizes, "Begin at random instead, so wide");
  hidden.excludes = {"layers"};
  hidden.shows_default = false;
  const auto add = [&](const char* name, int64_t& value, const char* what) {
    Setting& setting = settings.add(name, value, kSizes, what);
    setting.needs = "hidden";
    setting.shows_default = false;
  };
  add("random-layers", shape.layers, "Layers of a model that begins at random");
  add("heads", shape.heads, "Its heads (default: by its width)");
  add("kv-heads", shape.kv_heads, "Its heads of keys and values (default: as many)");
  add("ffn", shape.ffn, "Width of its feed-forward (default: 8/3 of its own)");
}

MakeMethod declare_distill(SettingList& settings) {
  struct Given {
    DistillOptions options;
    RandomShape shape;
  };
  const auto given = std::make_shared<Given>();
  DistillOptions& o = given->options;
  settings.add("layers", o.layers,
               "Layers of the target to begin with: \"0,1,29\", or \"4\" for the first four");
  add_shape(settings, given->shape);
  settings.add("tied", o.tied, "One matrix for embedding and output");
  settings.add_draft_vocab(o.vocabulary);
  settings.add_loss(o.loss);
  settings.add_depth(o.depth);
  return [given](const MethodInputs& inputs) {
    if (given->shape.hidden > 0) given->options.shape = given->shape.of(inputs.target);
    return make_distill(inputs.target, given->options, inputs.generator);
  };
}

}  // namespace

Expected<std::unique_ptr<Method>> make_distill(Target& target, const DistillOptions& options,
                                               at::Generator& generator) {
  auto method = std::make_unique<Distill>(target, options);
  AERIE_RETURN_IF_ERROR(method->start(target, generator));
  return std::unique_ptr<Method>(std::move(method));
}

constinit const TrainingMethod kDistillTraining = {
    .name = "distill",
    .what = "A small model taught to say what the target says",
    .drafter = "draft_model",
    .schedule = {.rate = 3e-4, .warmup = 0.02, .floor = 0.1},
    .clip_norm = 1.0,
    .declare = declare_distill,
};

}  // namespace aerie::train

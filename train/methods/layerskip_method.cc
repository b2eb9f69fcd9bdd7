#include "train/methods/layerskip_method.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

#include "train/methods/adapted_file.h"
#include "train/methods/row_chunks.h"
#include "train/methods/supervision.h"
#include "train/methods/training_methods.h"
#include "train/nn/llama_model.h"

namespace aerie::train {

extern const TrainingMethod kLayerSkipTraining;

namespace {

constexpr const char* kModel = "model.gguf";

Status check(const LayerSkipOptions& options, int layers) {
  const auto invalid = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  };
  if (layers < 2) return invalid("a model with one layer has none to skip");
  if (!(options.dropout >= 0.0 && options.dropout < 1.0)) {
    return invalid(fmt::format("a dropout of {} is not within [0, 1)", options.dropout));
  }
  if (!(options.exit_scale >= 0.0 && options.exit_scale <= 1.0)) {
    return invalid(fmt::format("an exit scale of {} is not within [0, 1]", options.exit_scale));
  }
  if (options.rotation < 1 || options.steps < 1) {
    return invalid("rotation and steps are 1 at least");
  }
  if (options.exit_layer < 0 || options.exit_layer >= layers) {
    return invalid(
        fmt::format("exit layer {} is not within 1 to {}", options.exit_layer, layers - 1));
  }
  return {};
}

class LayerSkip final : public Method {
 public:
  LayerSkip(const Target& target, const LayerSkipOptions& options)
      : target_(target), options_(options) {}
  Status start(Target& target);

  const MethodNeeds& needs() const override { return needs_; }
  Parameters& parameters() override { return parameters_; }
  double weight(const Batch& batch) const override {
    return supervised_next(batch).sum().item<double>();
  }
  void set_progress(double share) override { progress_ = std::clamp(share, 0.0, 1.0); }
  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) override;
  Status write(const std::string& folder) const override {
    return write_adapted_model(target_, model_.weights(), fmt::format("{}/{}", folder, kModel));
  }
  DraftSettings settings() const override {
    return {fmt::format("{}:exit_layer={},num_speculative_tokens={}", kLayerSkipTraining.drafter,
                        options_.exit_layer, options_.depth),
            fmt::format("{{}}/{}", kModel)};
  }

 private:
  struct Exit {
    int64_t layer;  // behind which
    double weight;
    at::Tensor stream;  // of the supervised rows
    double loss = 0.0;
    at::Tensor likeliest;  // [rows]
  };

  int64_t layers() const { return model_.shape().layers; }
  bool enabled(int64_t layer) const;
  std::vector<Exit> exits(bool train) const;
  at::Tensor shares(const Documents& documents, at::Generator& generator) const;
  at::Tensor learn(Exit& exit, const at::Tensor& next, double scale) const;

  const Target& target_;
  LayerSkipOptions options_;
  MethodNeeds needs_;
  Parameters parameters_;
  LlamaModel model_;
  double progress_ = 0.0;
};

Status LayerSkip::start(Target& target) {
  const int layers = target.config().layers;
  AERIE_RETURN_IF_ERROR(check(options_, layers));
  if (options_.exit_layer == 0) options_.exit_layer = std::max(1, layers / 4);
  LlamaCut all;
  for (int64_t layer = 0; layer < layers; ++layer) all.layers.push_back(layer);
  AERIE_ASSIGN_OR_RETURN(model_, LlamaModel::cut(parameters_, target, all));
  return {};
}

// Besides the last layer, which always is.
bool LayerSkip::enabled(int64_t layer) const {
  const auto count = static_cast<double>(layers());
  if (options_.curriculum == ExitCurriculum::kGradual) {
    return progress_ >= (count - static_cast<double>(layer)) / (2.0 * count);
  }
  const int64_t step = std::llround(progress_ * options_.steps);
  return layer % options_.rotation == step % options_.rotation;
}

std::vector<LayerSkip::Exit> LayerSkip::exits(bool train) const {
  // e(l) of the paper: sums of the layers' numbers.
  const auto sum_to = [&](int64_t l) {
    return options_.exit_scale * static_cast<double>(l * (l + 1) / 2);
  };
  const int64_t last = layers() - 1;
  std::vector<Exit> list;
  double total = 0.0;
  for (int64_t l = 0; l <= last; ++l) {
    const bool is_judged = !train && l + 1 == options_.exit_layer;
    if (l != last && !enabled(l) && !is_judged) continue;
    double weight = enabled(l) ? sum_to(l) : 0.0;
    if (l == last) weight = static_cast<double>(last) + sum_to(last - 1);
    list.push_back({l, weight, {}, 0.0, {}});
    total += weight;
  }
  for (Exit& exit : list) exit.weight /= total;
  return list;
}

// Which samples leave out which layers, as LlamaModel::forward() wants it.
at::Tensor LayerSkip::shares(const Documents& documents, at::Generator& generator) const {
  const auto growth = [](double share) { return std::exp(share * std::numbers::ln2) - 1.0; };
  const double now = options_.dropout * (options_.from_scratch ? growth(progress_) : 1.0);
  const auto last = static_cast<double>(layers() - 1);
  const at::Tensor chances =
      at::arange(layers()).to(at::kFloat).mul_(std::numbers::ln2 / last).expm1_().mul_(now);
  const at::Tensor kept =
      at::rand({layers(), documents.count()}, generator).ge(chances.unsqueeze(1)).to(at::kFloat);
  const at::Tensor starts = at::tensor(documents.starts, at::kLong);
  return kept.repeat_interleave(starts.diff(), 1);
}

// The gradient of the exit's stream.
at::Tensor LayerSkip::learn(Exit& exit, const at::Tensor& next, double scale) const {
  std::vector<at::Tensor> likeliest;
  const at::Tensor gradient =
      loss_in_chunks(exit.stream, scale * exit.weight, [&](const at::Tensor& part, int64_t begin) {
        const at::Tensor logits = model_.logits(part);
        const at::Tensor loss = at::cross_entropy_loss(logits, next.narrow(0, begin, part.size(0)),
                                                       {}, at::Reduction::Sum);
        exit.loss += loss.item<double>();
        likeliest.push_back(logits.detach().argmax(-1));
        return loss;
      });
  exit.likeliest = at::cat(likeliest);
  return gradient;
}

Expected<Figures> LayerSkip::accumulate(const Batch& batch, double scale, at::Generator& generator,
                                        bool train) {
  const at::AutoGradMode gradients(train);
  const at::Tensor rows = places_of(supervised_next(batch));
  Figures figures;
  figures.weight = static_cast<double>(rows.size(0));
  if (rows.size(0) == 0) {
    figures.add("loss", 0.0);
    return figures;
  }
  at::Tensor kept;
  if (train && options_.dropout > 0.0) {
    kept = shares(batch.documents, generator).to(batch.tokens.device());
  }
  const std::vector<at::Tensor> streams =
      model_.forward(batch.tokens, batch.positions, batch.documents, kept);
  const at::Tensor next = batch.tokens.index_select(0, rows + 1);
  std::vector<Exit> list = exits(train);
  double loss = 0.0;
  at::Tensor ends;  // whose gradient is that of all streams
  for (Exit& exit : list) {
    exit.stream = streams[static_cast<size_t>(exit.layer) + 1].index_select(0, rows);
    const at::Tensor gradient = learn(exit, next, scale);
    loss += exit.weight * exit.loss;
    if (!train) continue;
    const at::Tensor end = (exit.stream * gradient).sum();
    ends = ends.defined() ? ends + end : end;
  }
  if (train) ends.backward();
  figures.add("loss", loss);
  if (train) return figures;
  const auto count = [](const at::Tensor& same) { return same.sum().item<double>(); };
  const Exit& end = list.back();
  const Exit& early = *std::ranges::find(list, options_.exit_layer - 1, &Exit::layer);
  figures.add("loss_last", end.loss);
  figures.add("hits", count(end.likeliest.eq(next)));
  figures.add("hits_exit", count(early.likeliest.eq(next)));
  figures.add("agreement", count(early.likeliest.eq(end.likeliest)));
  return figures;
}

MakeMethod declare_layerskip(SettingList& settings) {
  const auto o = std::make_shared<LayerSkipOptions>();
  settings.add("dropout", o->dropout, {0, 1},
               "How often the last layer is left out; earlier ones less");
  settings.add("from-scratch", o->from_scratch, "Dropout grows from nothing with the training");
  settings.add("exit-scale", o->exit_scale, "Weighs the losses behind early layers");
  settings.add_word("curriculum", o->curriculum, parse_exit_curriculum, "rotational",
                    "Which layers have a loss: rotational, gradual");
  settings.add("rotation", o->rotation, "rotational: every so many layers, one further a step");
  settings.add("rotation-steps", o->steps, "Steps of the training, which rotational counts by");
  settings.add("exit-layer", o->exit_layer,
               "Where drafts will leave the model; 0: behind a quarter of its layers");
  settings.add_depth(o->depth);
  return made_of(o, make_layerskip);
}

}  // namespace

Expected<ExitCurriculum> parse_exit_curriculum(std::string_view name) {
  if (name == "rotational") return ExitCurriculum::kRotational;
  if (name == "gradual") return ExitCurriculum::kGradual;
  return Status(StatusCode::kInvalidArgument,
                fmt::format("\"{}\" is no curriculum: there are rotational and gradual", name));
}

Expected<std::unique_ptr<Method>> make_layerskip(Target& target, const LayerSkipOptions& options,
                                                 at::Generator& generator) {
  (void)generator;
  auto method = std::make_unique<LayerSkip>(target, options);
  AERIE_RETURN_IF_ERROR(method->start(target));
  return std::unique_ptr<Method>(std::move(method));
}

constinit const TrainingMethod kLayerSkipTraining = {
    .name = "layerskip",
    .what = "LayerSkip: a new target that can be left early",
    .drafter = "early_exit",
    .schedule = {.rate = 3e-5, .warmup = 0.02, .floor = 0.0},
    .clip_norm = 1.0,
    .declare = declare_layerskip,
};

}  // namespace aerie::train

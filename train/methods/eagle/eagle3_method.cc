#include "train/methods/eagle/eagle3_method.h"

#include <ATen/core/grad_mode.h>
#include <utility>
#include <vector>

#include "train/methods/eagle/continued_head.h"
#include "train/methods/supervision.h"
#include "train/methods/training_methods.h"
#include "train/nn/lap_clock.h"
#include "train/nn/ops.h"
#include "train/nn/output_loss.h"
#include "train/nn/roots.h"

namespace aerie::train {

extern const TrainingMethod kEagle3Training;

// Of the rows from now on, only these.
void TrainingTimeTest::keep(const at::Tensor& rows) {
  if (rows.size(0) == rows_.size(0)) return;
  const at::Tensor places = at::searchsorted(rows_, rows);
  rows_ = rows;
  g_ = g_.index_select(0, places);
  for (OwnEntry& entry : own_) {
    entry = {entry.k.index_select(0, places), entry.v.index_select(0, places)};
  }
}

// The stream behind the layer.
at::Tensor TrainingTimeTest::run() {
  const LlamaLayer& layer = head_.layers().front();
  const at::Tensor tokens = batch_.shifted(batch_.tokens, step_ + 1).index_select(0, rows_);
  const Eagle3Head::Entry entry = head_.enter(head_.embed(tokens), g_);
  const at::Tensor positions = batch_.positions.index_select(0, rows_) + step_;
  const Projections p = layer.project(entry.input, head_.rotary(positions));
  at::Tensor attended;
  if (step_ == 0) {
    keys_ = p.k;
    values_ = p.v;
    attended = attend(p.q, p.k, p.v, batch_.documents);
  } else {
    own_.push_back({p.k, p.v});
    attended = attend_from(p.q, query_rows(batch_.documents, rows_), keys_, values_,
                           batch_.documents, own_);
  }
  return layer.feed_forward(entry.stream + layer.output(attended));
}

at::Tensor TrainingTimeTest::step(const at::Tensor& rows) {
  if (step_ == 0) {
    rows_ = at::arange(batch_.documents.rows(), batch_.tokens.options());
    g_ = head_.fuse(batch_.taps);
  } else {
    keep(rows);
  }
  const at::Tensor stream = run();
  g_ = head_.handed(stream);
  const bool first = step_++ == 0;
  if (first) keep(rows);
  return first ? stream.index_select(0, rows) : stream;
}

namespace {

// The target's logits behind the rows that the first step asks for. Those that later steps want are
// among them: a row is asked only if what lies between is asked, too.
struct Wanted {
  at::Tensor rows;    // of the first step
  at::Tensor logits;  // behind the token after each

  WantedLogits of(const at::Tensor& asked, int64_t step) const {
    return {logits, at::searchsorted(rows, asked + step)};
  }
};

class Eagle3 final : public HeadMethod<Eagle3Head> {
 public:
  Eagle3(const Eagle3Head& head, const Eagle3Options& options)
      : HeadMethod(head, head.options().tap_layers), options_(options) {}

  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) override;
  void set_progress(double share) override { progress_ = share; }
  Status write(const std::string& folder) const override {
    return head_.write(folder, "eagle3", options_.depth);
  }
  DraftSettings settings() const override {
    return DraftSettings::of(kEagle3Training.drafter, options_.depth);
  }

 private:
  // A step of the training-time test: the rows that are asked, and their streams.
  struct Step {
    int number = 0;
    at::Tensor rows, stream;
    double scale = 1.0;  // of its loss
  };
  // What the steps' losses are made with, and what they leave.
  struct Losses {
    Wanted wanted;
    OutputLoss output;
    Roots roots;
  };
  double learn(const Batch& batch, const Step& step, Losses& losses, Figures& figures) const;

  Eagle3Options options_;
  double progress_ = 0.0;
};

// Adds a step's figures and the gradients of what lies behind its streams; returns its loss.
double Eagle3::learn(const Batch& batch, const Step& step, Losses& losses, Figures& figures) const {
  const at::Tensor normed = head_.normed(step.stream);
  const OutputLoss::Result loss = losses.output.run(
      options_.loss, normed, losses.wanted.of(step.rows, step.number), step.scale);
  losses.roots.add(normed, loss.gradient);
  const at::Tensor next = batch.tokens.index_select(0, step.rows + (step.number + 2));
  const at::Tensor drafted = head_.draft_ids().index_select(0, loss.likeliest);
  const double sum = loss.losses.sum(at::kDouble).item<double>();
  add_step(figures, step.number, sum, drafted.eq(next).sum().item<double>(),
           static_cast<double>(step.rows.size(0)));
  return sum;
}

Expected<Figures> Eagle3::accumulate(const Batch& batch, double scale, at::Generator& generator,
                                     bool train) {
  (void)generator;
  const at::AutoGradMode gradients(train);
  Figures figures;
  TrainingTimeTest test(head_, batch);
  Losses losses{{}, OutputLoss(head_.output()), {}};
  at::Tensor asked = at::ones_like(batch.mask);
  // Evaluations are of all steps, so that those of the whole training compare.
  const int steps = train && progress_ < options_.test_from ? 1 : options_.steps;
  LapClock clock;
  double weight = 1.0, loss_sum = 0.0;
  for (int number = 0; number < steps; ++number, weight *= options_.step_decay) {
    asked = asked * supervised_rows(batch, number);
    const at::Tensor rows = places_of(asked);
    if (number == 0) figures.weight = static_cast<double>(rows.size(0));
    if (rows.size(0) == 0) break;
    if (number == 0) {
      losses.wanted = {rows, head_.wanted_logits(batch.last.index_select(0, rows + 1))};
    }
    const Step step = {number, rows, test.step(rows), scale * weight};
    figures.seconds.forward += clock.lap();
    loss_sum += weight * learn(batch, step, losses, figures);
    figures.seconds.loss += clock.lap();
  }
  figures.add("loss", loss_sum);
  losses.output.finish();
  figures.seconds.loss += clock.lap();
  losses.roots.backward();
  figures.seconds.backward = clock.lap();
  return figures;
}

MakeMethod declare_eagle3(SettingList& settings) {
  const auto o = std::make_shared<Eagle3Options>();
  o->head.add_taps_to(settings);
  settings.add_draft_vocab(o->head.vocabulary);
  settings.add("ttt-steps", o->steps, {1, 64}, "Steps of the training-time test; 1: none");
  settings.add("ttt-from", o->test_from, {0, 1},
               "The share of the training before which there is one step alone");
  settings.add("step-decay", o->step_decay, {0, 1}, "Step j weighs so much to the power of j");
  settings.add_loss(o->loss);
  settings.add_depth(o->depth);
  settings.add_intermediate(o->head.intermediate);
  settings.add("norm-output", o->head.norm_output, "Hand on what has been normed");
  return [o](const MethodInputs& inputs) -> Expected<std::unique_ptr<Method>> {
    if (!inputs.continued.empty()) {
      AERIE_RETURN_IF_ERROR(read_shape(inputs.continued, o->head, o->depth));
    }
    return make_eagle3(inputs.target, *o, inputs.generator);
  };
}

constexpr int kEagle3Depths[] = {1, 3, 5};
// In a short time: first much text in one step, then what later tokens of a draft need.
constexpr SettingValue kEagle3Speedup[] = {{"ttt-steps", 4}, {"ttt-from", 0.5}};

}  // namespace

Expected<std::unique_ptr<Method>> make_eagle3(Target& target, const Eagle3Options& options,
                                              at::Generator& generator) {
  if (options.steps < 1 || options.head.layers != 1) {
    return Status(StatusCode::kInvalidArgument,
                  "EAGLE-3 is trained with one layer and at least one step");
  }
  AERIE_ASSIGN_OR_RETURN(const Eagle3Head head,
                         Eagle3Head::create(target, options.head, generator));
  return std::unique_ptr<Method>(std::make_unique<Eagle3>(head, options));
}

constinit const TrainingMethod kEagle3Training = {
    .name = "eagle3",
    .what = "EAGLE-3: a layer on three of the target's streams",
    .drafter = "eagle3",
    .schedule = {.rate = 1e-4, .warmup = 0.015, .floor = 0.0},
    .clip_norm = 0.5,
    .declare = declare_eagle3,
    // Before P-EAGLE: one layer instead of four, so the same time trains it on more text.
    .speedup_depths = kEagle3Depths,
    .speedup_settings = kEagle3Speedup,
};

}  // namespace aerie::train

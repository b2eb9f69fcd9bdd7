#include "train/methods/eagle3.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "train/nn/ops.h"

namespace aerie::train {
namespace {

class Eagle3 final : public Method {
 public:
  Eagle3(Eagle3Head head, const Eagle3Options& options)
      : head_(std::move(head)), options_(options) {
    needs_.tap_layers = head_.options().tap_layers;
    needs_.last = true;
  }

  const MethodNeeds& needs() const override { return needs_; }
  Parameters& parameters() override { return head_.parameters(); }
  double weight(const Batch& batch) const override {
    return supervised(batch, 0).sum().item<double>();
  }
  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) override;
  Status write(const std::string& folder) const override {
    return head_.write(folder, "eagle3", options_.depth);
  }
  DraftSettings settings() const override {
    return {fmt::format("eagle3:model={{}},num_speculative_tokens={}", options_.depth)};
  }

 private:
  // What a step leaves for the next one: of some of the batch's rows.
  struct State {
    at::Tensor rows;            // int64 [some], ascending
    at::Tensor g;               // [some, hidden]
    std::vector<OwnEntry> own;  // of the steps so far but the first
  };
  struct Keys {
    at::Tensor k, v;  // of all rows, of the first step
  };

  static at::Tensor supervised(const Batch& batch, int step);
  at::Tensor run(const Batch& batch, int step, State& state, Keys& keys) const;
  static void narrow(State& state, const at::Tensor& places);

  Eagle3Head head_;
  Eagle3Options options_;
  MethodNeeds needs_;
};

// Row t is asked in step j for the token at t + 2 + j, of what the target says at t + 1 + j; both
// are to be tokens that the target generated, as they are where it drafts.
at::Tensor Eagle3::supervised(const Batch& batch, int step) {
  return batch.shifted(batch.mask, step + 1) * batch.shifted(batch.mask, step + 2);
}

void Eagle3::narrow(State& state, const at::Tensor& places) {
  state.rows = state.rows.index_select(0, places);
  state.g = state.g.index_select(0, places);
  for (OwnEntry& entry : state.own) {
    entry = {entry.k.index_select(0, places), entry.v.index_select(0, places)};
  }
}

// One step of the state's rows: the stream behind the last layer.
at::Tensor Eagle3::run(const Batch& batch, int step, State& state, Keys& keys) const {
  const LlamaLayer& layer = head_.layers().front();
  const at::Tensor tokens = batch.shifted(batch.tokens, step + 1).index_select(0, state.rows);
  const Eagle3Head::Entry entry = head_.enter(head_.embed(tokens), state.g);
  const at::Tensor positions = batch.positions.index_select(0, state.rows) + step;
  const Projections p = layer.project(entry.input, head_.rotary(positions));
  at::Tensor attended;
  if (step == 0) {
    keys = {p.k, p.v};
    attended = attend(p.q, p.k, p.v, batch.documents);
  } else {
    state.own.push_back({p.k, p.v});
    attended = attend_from(p.q, query_rows(batch.documents, state.rows), keys.k, keys.v,
                           batch.documents, state.own);
  }
  return layer.feed_forward(entry.stream + layer.output(attended));
}

Expected<Figures> Eagle3::accumulate(const Batch& batch, double scale, at::Generator& generator,
                                     bool train) {
  (void)generator;
  const at::AutoGradMode gradients(train);
  Figures figures;
  State state;
  Keys keys;
  state.rows = at::arange(batch.documents.rows(), batch.tokens.options());
  state.g = head_.fuse(batch.taps);
  at::Tensor total = at::zeros({}, batch.taps.options());
  double weight = 1.0, loss_sum = 0.0;
  for (int step = 0; step < options_.steps; ++step) {
    const at::Tensor asked = supervised(batch, step);
    if (step > 0) {
      // No other row sees what a row does in later steps, so those that are not asked can rest.
      narrow(state, asked.index_select(0, state.rows).nonzero().squeeze(1));
    }
    if (state.rows.size(0) == 0) break;
    at::Tensor stream = run(batch, step, state, keys);
    if (step == 0) {
      const at::Tensor places = asked.nonzero().squeeze(1);
      figures.weight = static_cast<double>(places.size(0));
      if (places.size(0) == 0) break;
      state.g = head_.handed(stream);
      narrow(state, places);
      stream = stream.index_select(0, places);
    } else {
      state.g = head_.handed(stream);
    }
    const at::Tensor logits = head_.logits(stream);
    at::Tensor wanted;
    {
      const at::NoGradGuard no_grad;
      wanted = head_.wanted_logits(batch.last.index_select(0, state.rows + (step + 1)));
    }
    const at::Tensor loss = divergence(options_.loss, wanted, logits).sum();
    total = total + loss * weight;
    const double value = loss.item<double>();
    loss_sum += value * weight;
    weight *= options_.step_decay;
    const at::Tensor next = batch.tokens.index_select(0, state.rows + (step + 2));
    const at::Tensor hits =
        head_.draft_ids().index_select(0, logits.detach().argmax(-1)).eq(next).sum();
    figures.add(fmt::format("loss_{}", step), value);
    figures.add(fmt::format("hits_{}", step), hits.item<double>());
    figures.add(fmt::format("rows_{}", step), static_cast<double>(state.rows.size(0)));
  }
  figures.add("loss", loss_sum);
  if (train && total.requires_grad()) (total * scale).backward();
  return figures;
}

}  // namespace

Expected<std::unique_ptr<Method>> make_eagle3(Target& target, const Eagle3Options& options,
                                              at::Generator& generator) {
  if (options.steps < 1 || options.head.layers != 1) {
    return Status(StatusCode::kInvalidArgument,
                  "EAGLE-3 is trained with one layer and at least one step");
  }
  AERIE_ASSIGN_OR_RETURN(Eagle3Head head, Eagle3Head::create(target, options.head, generator));
  return std::unique_ptr<Method>(std::make_unique<Eagle3>(std::move(head), options));
}

}  // namespace aerie::train

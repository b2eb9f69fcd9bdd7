#include "train/methods/block/block_method.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <utility>
#include <vector>

#include "train/methods/row_chunks.h"
#include "train/methods/supervision.h"
#include "train/methods/training_methods.h"

namespace aerie::train {

extern const TrainingMethod kDflashTraining;
extern const TrainingMethod kDsparkTraining;

namespace {

// What is drafted of some blocks and counts.
struct Asked {
  at::Tensor drafts;   // int64 [asked]: of BlockHead::drafts()
  at::Tensor places;   // int64 [asked]: rows of the batch whose token comes next
  at::Tensor depths;   // int64 [asked]
  at::Tensor weights;  // float [asked]
};

class BlockMethod final : public HeadMethod<BlockHead> {
 public:
  BlockMethod(const BlockHead& head, const BlockOptions& options)
      : HeadMethod(head, head.options().tap_layers), options_(options) {}

  Expected<Figures> accumulate(const Batch& batch, double scale, at::Generator& generator,
                               bool train) override;
  Status write(const std::string& folder) const override { return head_.write(folder); }
  DraftSettings settings() const override {
    const TrainingMethod& method = head_.options().spark ? kDsparkTraining : kDflashTraining;
    return DraftSettings::of(method.drafter, head_.options().depth);
  }

 private:
  at::Tensor draw_anchors(const at::Tensor& asked, at::Generator& generator) const;
  Asked what_counts(const Batch& batch, const at::Tensor& anchors) const;
  at::Tensor entropy_rows(const at::Tensor& next, const at::Tensor& logits) const;
  at::Tensor loss_rows(const Batch& batch, const at::Tensor& places, const at::Tensor& drafts,
                       const at::Tensor& logits) const;

  BlockOptions options_;
};

// Ascending, at least one of them.
at::Tensor BlockMethod::draw_anchors(const at::Tensor& asked, at::Generator& generator) const {
  const at::Tensor places = places_of(asked);
  const auto all = static_cast<double>(places.size(0));
  const auto count = std::max<int64_t>(1, std::llround(all * options_.share));
  const at::Tensor order = at::randperm(places.size(0), generator, at::TensorOptions(at::kLong));
  const at::Tensor drawn = std::get<0>(order.narrow(0, 0, count).sort());
  return places.index_select(0, drawn.to(places.device()));
}

Asked BlockMethod::what_counts(const Batch& batch, const at::Tensor& anchors) const {
  const int64_t depth = head_.options().depth;
  std::vector<at::Tensor> counts;  // of each depth: [blocks]
  at::Tensor running = at::ones_like(batch.mask);
  for (int64_t d = 0; d < depth; ++d) {
    running = running * batch.shifted(batch.mask, d + 2);
    counts.push_back(running.index_select(0, anchors));
  }
  Asked out;
  out.drafts = at::stack(counts, 1).view({-1}).gt(0.5).nonzero().squeeze(1);
  out.depths = out.drafts.remainder(depth);
  out.places = anchors.index_select(0, out.drafts.floor_divide(depth)) + out.depths + 1;
  out.weights = options_.decay > 0.0 ? (out.depths * (-1.0 / options_.decay)).exp()
                                     : at::ones_like(out.depths, batch.mask.options());
  out.weights = out.weights.to(at::kFloat);
  return out;
}

// Of tokens that can be drafted; others teach nothing.
at::Tensor BlockMethod::entropy_rows(const at::Tensor& next, const at::Tensor& logits) const {
  const at::Tensor& ids = head_.draft_ids();
  const at::Tensor row = at::searchsorted(ids, next).clamp_max(ids.size(0) - 1);
  const at::Tensor known = ids.index_select(0, row).eq(next);
  return -logits.log_softmax(-1).gather(-1, row.unsqueeze(1)).squeeze(1) * known;
}

// The token of a place is the one before what is drafted there.
at::Tensor BlockMethod::loss_rows(const Batch& batch, const at::Tensor& places,
                                  const at::Tensor& drafts, const at::Tensor& logits) const {
  constexpr double kEntropyShare = 0.1, kDistanceShare = 0.9;
  const bool spark = head_.options().spark;
  const at::Tensor next = batch.tokens.index_select(0, places + 1);
  if (!spark && !options_.loss) return entropy_rows(next, logits);
  const at::Tensor wanted = head_.wanted_logits(batch.last.index_select(0, places));
  at::Tensor loss;
  if (options_.loss) {
    loss = divergence(*options_.loss, wanted, logits);
  } else {
    loss = kEntropyShare * entropy_rows(next, logits) +
           2.0 * kDistanceShare * divergence(Divergence::kTotalVariation, wanted, logits);
  }
  if (!spark) return loss;
  const at::Tensor sure = head_.confidence(drafts, batch.tokens.index_select(0, places));
  return loss + at::binary_cross_entropy_with_logits(sure, acceptance(wanted, logits), {}, {},
                                                     at::Reduction::None);
}

Expected<Figures> BlockMethod::accumulate(const Batch& batch, double scale,
                                          at::Generator& generator, bool train) {
  const at::AutoGradMode gradients(train);
  const at::Tensor supervised = supervised_rows(batch, 0);
  Figures figures;
  figures.weight = supervised.sum().item<double>();
  if (figures.weight == 0.0) return figures;
  const at::Tensor anchors = draw_anchors(supervised, generator);
  const Asked asked = what_counts(batch, anchors);
  const at::Tensor drafts = head_.drafts(batch, anchors).index_select(0, asked.drafts);
  const double share = figures.weight / asked.weights.sum().item<double>();
  const int64_t depth = head_.options().depth;
  at::Tensor sums = at::zeros({3, depth}, batch.mask.options().dtype(at::kDouble));
  double total = 0.0;
  const auto loss_of = [&](const at::Tensor& part, int64_t begin) {
    const auto rows = [&](const at::Tensor& x) { return x.narrow(0, begin, part.size(0)); };
    const at::Tensor places = rows(asked.places);
    const at::Tensor next = batch.tokens.index_select(0, places + 1);
    const at::Tensor logits = head_.logits(part, batch.tokens.index_select(0, places));
    const at::Tensor losses = loss_rows(batch, places, part, logits);
    const at::Tensor best = head_.draft_ids().index_select(0, logits.detach().argmax(-1));
    sums.index_add_(1, rows(asked.depths),
                    at::stack({losses.detach().to(at::kDouble), best.eq(next).to(at::kDouble),
                               at::ones_like(losses, at::kDouble)}));
    const at::Tensor loss = (losses * rows(asked.weights)).sum();
    total += loss.item<double>();
    return loss;
  };
  const at::Tensor gradient = loss_in_chunks(drafts, scale * share, loss_of);
  if (gradient.defined()) drafts.backward(gradient);
  const at::Tensor on_cpu = sums.cpu();
  const auto values = on_cpu.accessor<double, 2>();
  for (int64_t d = 0; d < depth; ++d) {
    add_step(figures, d, values[0][d], values[1][d], values[2][d]);
  }
  figures.add("loss", total * share);
  return figures;
}

MakeMethod declare_block(SettingList& settings, bool spark) {
  const auto o = std::make_shared<BlockOptions>();
  o->head.spark = spark;
  o->head.add_to(settings);
  if (spark) {
    settings.add("markov-rank", o->head.markov_rank, {1, 4096},
                 "Rank of what the token before says of the next");
  }
  settings.add("share", o->share, {0, 1},
               "Behind so many of the target's tokens a block is drafted");
  settings.add("depth-decay", o->decay, {0, 1e6},
               "The token at depth d, from 0, counts exp(-d / decay); 0: all the same");
  settings.add_loss(o->loss);
  return made_of(o, make_block);
}

MakeMethod declare_dflash(SettingList& settings) {
  return declare_block(settings, false);
}
MakeMethod declare_dspark(SettingList& settings) {
  return declare_block(settings, true);
}

}  // namespace

Expected<std::unique_ptr<Method>> make_block(Target& target, const BlockOptions& options,
                                             at::Generator& generator) {
  if (!(options.share >= 0.0 && options.share <= 1.0) || !(options.decay >= 0.0)) {
    return Status(StatusCode::kInvalidArgument,
                  "blocks are drafted behind a share of the tokens between 0 and 1, and their "
                  "decay is 0 or more");
  }
  AERIE_ASSIGN_OR_RETURN(const BlockHead head, BlockHead::create(target, options.head, generator));
  return std::unique_ptr<Method>(std::make_unique<BlockMethod>(head, options));
}

constinit const TrainingMethod kDflashTraining = {
    .name = "dflash",
    .what = "DFlash: blocks of tokens that one pass drafts, over the target's layers",
    .drafter = "dflash",
    .schedule = {.rate = 6e-4, .warmup = 0.04, .floor = 0.0},
    .clip_norm = 1.0,
    .declare = declare_dflash,
};

constinit const TrainingMethod kDsparkTraining = {
    .name = "dspark",
    .what = "DSpark: the same with a Markov head and a confidence head",
    .drafter = "dspark",
    .schedule = {.rate = 6e-4, .warmup = 0.04, .floor = 0.0},
    .clip_norm = 1.0,
    .declare = declare_dspark,
};

}  // namespace aerie::train

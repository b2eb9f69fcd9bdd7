#include "train/methods/offset/offset_heads.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "draft/heads/feature_network.h"
#include "train/methods/supervision.h"
#include "train/nn/ops.h"

namespace aerie::train {
namespace {

constexpr int kMostBlocks = 64;
constexpr int64_t kNoLabel = -100;
constexpr int64_t kLogits = int64_t{1} << 24;  // made at a time

enum Sum : int64_t { kTotal, kLoss, kHits, kAccepted, kSums };

// The first row of each row's document: int64 [rows].
at::Tensor document_starts(const Documents& documents, const at::TensorOptions& options) {
  std::vector<at::Tensor> parts;
  for (int64_t d = 0; d < documents.count(); ++d) {
    parts.push_back(at::full({documents.length(d)}, documents.start(d), options));
  }
  return at::cat(parts, 0);
}

Status wrong(const std::string& what) {
  return {StatusCode::kInvalidArgument, what};
}

}  // namespace

// Positions whose next token the heads are to say, and what is known of them.
struct OffsetHeads::Chunk {
  at::Tensor places;         // int64 [places]
  at::Tensor starts;         // of the documents, as document_starts(): of all rows
  at::Tensor target_logits;  // [places, draft vocabulary], if they are wanted
  at::Tensor states;         // of all rows
  double scale = 1.0;
  bool train = false;
};

void add_head_shape(SettingList& settings, int& heads, int& blocks, bool& bf16,
                    std::vector<int32_t>& vocabulary) {
  settings.add("heads", heads, {1, 64}, "Heads; each drafts one token more");
  settings.add("blocks", blocks, {1, kMostBlocks}, "Blocks of a head");
  settings.add("store-bf16", bf16, "Store matrices as BF16");
  settings.add_draft_vocab(vocabulary);
}

void add_offset_loss(SettingList& settings, OffsetLoss& loss,
                     const std::vector<std::string>& excludes) {
  const std::pair<double*, std::pair<const char*, const char*>> all[] = {
      {&loss.labels, {"label-weight", "Weighs the text's tokens"}},
      {&loss.teacher, {"teacher-weight", "Weighs the target's distribution"}},
      {&loss.decay, {"head-decay", "Head k weighs so much to the power of k"}}};
  for (const auto& [field, text] : all) {
    settings.add(text.first, *field, text.second).excludes = excludes;
  }
  settings.add_loss(loss.divergence);
}

Expected<OffsetHeads> OffsetHeads::create(Target& target, const OffsetHeadsOptions& options) {
  OffsetHeads heads;
  heads.target_ = &target;
  heads.options_ = options;
  AERIE_RETURN_IF_ERROR(heads.check());
  AERIE_ASSIGN_OR_RETURN(heads.norm_, target.final_norm());
  AERIE_ASSIGN_OR_RETURN(heads.target_rows_, target.output());
  const at::TensorOptions integers = heads.target_rows_.options().dtype(at::kLong);
  if (options.vocabulary.empty()) return heads;
  AERIE_ASSIGN_OR_RETURN(heads.draft_ids_, target.draft_ids(options.vocabulary));
  heads.target_rows_ = heads.target_rows_.index_select(0, heads.draft_ids_);
  heads.draft_index_ = at::full({target.config().vocab}, kNoLabel, integers);
  heads.draft_index_.index_put_({heads.draft_ids_}, at::arange(heads.draft_ids_.size(0), integers));
  return heads;
}

Status OffsetHeads::check() const {
  if (options_.heads < 1 || options_.heads > kMostHeadDepth) {
    return wrong(fmt::format("{} heads: there can be 1 to {}", options_.heads, kMostHeadDepth));
  }
  if (options_.blocks < 1 || options_.blocks > kMostBlocks) {
    return wrong(fmt::format("{} blocks: a head can have 1 to {}", options_.blocks, kMostBlocks));
  }
  const OffsetLoss& loss = options_.loss;
  const double weights[] = {loss.labels, loss.teacher, loss.features};
  const bool negative =
      std::ranges::any_of(weights, [](double w) { return !(w >= 0.0) || !std::isfinite(w); });
  if (negative || std::ranges::all_of(weights, [](double w) { return w == 0.0; })) {
    return wrong("weights of losses must be finite, at least 0, and one of them more");
  }
  if (!(loss.decay > 0.0 && loss.decay <= 1.0)) {
    return wrong(fmt::format("a decay of {}: it must be above 0 and at most 1", loss.decay));
  }
  return {};
}

at::Tensor OffsetHeads::states(const Batch& batch) const {
  const at::NoGradGuard no_grad;
  return rms_norm(batch.last, norm_, target_->norm_eps());
}

// Positions whose next token the target generated: int64 [places].
at::Tensor OffsetHeads::supervised(const Batch& batch) const {
  return places_of(supervised_next(batch));
}

// The rows in which head `head` says the tokens behind these places; `kept`: which of the places
// have one. A row counts if its root was generated, as when drafting.
at::Tensor OffsetHeads::rows_of(const Batch& batch, const at::Tensor& starts,
                                const at::Tensor& places, int head, at::Tensor& kept) const {
  const at::Tensor rows = places - (1 + head);
  const at::Tensor inside = rows >= starts.index_select(0, places);
  const at::Tensor roots = (rows + 1).clamp_min(0);
  kept = inside.logical_and(batch.mask.index_select(0, roots) > 0).nonzero().squeeze(1);
  return rows.index_select(0, kept);
}

double OffsetHeads::weight(const Batch& batch) const {
  return supervised_rows(batch, 0).sum().item<double>();
}

Status OffsetHeads::accumulate_head(const Batch& batch, const Chunk& chunk, int head,
                                    const Forward& forward, at::Tensor& sums) const {
  at::Tensor kept;
  const at::Tensor rows = rows_of(batch, chunk.starts, chunk.places, head, kept);
  if (rows.numel() == 0) return {};
  AERIE_ASSIGN_OR_RETURN(const Output out, forward(head, rows));
  const at::Tensor places = chunk.places.index_select(0, kept);
  at::Tensor labels = batch.tokens.index_select(0, places + 1);
  if (draft_index_.defined()) labels = draft_index_.index_select(0, labels);
  const OffsetLoss& parts = options_.loss;
  at::Tensor loss = at::zeros({}, out.logits.options());
  if (parts.labels > 0.0) {
    loss = loss + parts.labels *
                      at::cross_entropy_loss(out.logits, labels, {}, at::Reduction::Sum, kNoLabel);
  }
  at::Tensor teacher;
  if (chunk.target_logits.defined()) teacher = chunk.target_logits.index_select(0, kept);
  if (parts.teacher > 0.0) {
    loss = loss + parts.teacher * divergence(parts.divergence, teacher, out.logits).sum();
  }
  if (parts.features > 0.0) {
    loss = loss +
           parts.features * smooth_l1_rows(out.state, chunk.states.index_select(0, places)).sum();
  }
  const double share = std::pow(parts.decay, head + 1);
  at::Tensor own = sums.select(0, head);
  own.select(0, kTotal).add_(loss.detach(), share);
  own.select(0, kLoss).add_(loss.detach());
  own.select(0, kHits).add_((out.logits.detach().argmax(-1) == labels).sum());
  if (teacher.defined() && !chunk.train) {
    own.select(0, kAccepted).add_(acceptance(teacher, out.logits).sum());
  }
  if (chunk.train) (loss * (share * chunk.scale)).backward();
  return {};
}

Expected<Figures> OffsetHeads::accumulate(const Batch& batch, const at::Tensor& states,
                                          double scale, bool train, const Forward& forward) const {
  const at::AutoGradMode gradients(train);
  const at::Tensor places = supervised(batch);
  const bool teaches = options_.loss.teacher > 0.0;
  at::Tensor sums = at::zeros({heads(), kSums}, batch.mask.options().dtype(at::kDouble));
  Chunk chunk;
  chunk.starts = document_starts(batch.documents, batch.tokens.options());
  chunk.states = states.detach();
  chunk.scale = scale;
  chunk.train = train;
  const int64_t step = std::max<int64_t>(1, kLogits / target_rows_.size(0));
  for (int64_t first = 0; first < places.numel(); first += step) {
    chunk.places = places.narrow(0, first, std::min(step, places.numel() - first));
    if (teaches) {
      const at::NoGradGuard no_grad;
      chunk.target_logits =
          target_logits(*target_, batch.last.index_select(0, chunk.places), norm_, target_rows_);
    }
    for (int head = 0; head < heads(); ++head) {
      AERIE_RETURN_IF_ERROR(accumulate_head(batch, chunk, head, forward, sums));
    }
  }
  sums = sums.to(at::kCPU);
  const auto value = sums.accessor<double, 2>();
  Figures figures;
  figures.weight = weight(batch);
  figures.add("loss", sums.select(1, kTotal).sum().item<double>());
  for (int head = 0; head < heads(); ++head) {
    figures.add(fmt::format("loss_{}", head + 1), value[head][kLoss]);
    figures.add(fmt::format("hit_{}", head + 1), value[head][kHits]);
    if (teaches && !train)
      figures.add(fmt::format("accepted_{}", head + 1), value[head][kAccepted]);
  }
  return figures;
}

}  // namespace aerie::train

#include "draft/network/row_offers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/filters.h"
#include "sampling/inverse_cdf.h"

namespace aerie {

RowOffers::RowOffers(DraftNetwork& network, const NetworkDrafterOptions& options)
    : network_(network), options_(options) {
  const bool pruned = !network.target_ids().empty();
  vocab_ = pruned ? options.vocab : std::min(options.vocab, network.vocab());
  if (pruned) {
    scattered_.assign(static_cast<size_t>(vocab_), -std::numeric_limits<float>::infinity());
  }
  const size_t ranked = usual_rank_probability().size() + kRunnersUp;
  ranking_.reserve(ranked);
  seen_.reserve(ranked);
  children_.reserve(ranked);
  taken_.reserve(ranked);
  if (network.follows()) {
    followed_.resize(static_cast<size_t>(network.vocab()));
    before_.reserve(static_cast<size_t>(std::max(draft_depth(options), network.depths())) + 1);
  }
  ranks_ = options.shape != nullptr ? options.shape->most_ranks() : options.top_k;
  ranks_ = std::min(ranks_, network.vocab());
  if (options.backend != nullptr) {
    const auto rows = static_cast<size_t>(options.max_logits);
    top_ids_.resize(rows * static_cast<size_t>(ranks_));
    top_logits_.resize(top_ids_.size());
    log_sums_.resize(rows);
  }
}

// Of a vocabulary of its own, logits behind those of target_ids() are padding.
int64_t RowOffers::known() const {
  return network_.target_ids().empty() ? vocab_ : network_.vocab();
}

void RowOffers::begin_pass(const DraftOutputs& outputs, bool plain) {
  outputs_ = &outputs;
  ranked_ = plain && options_.backend != nullptr && !network_.follows();
  if (!ranked_) return;
  if (outputs.top.k >= ranks_ && known() == network_.vocab()) return take_top();
  const std::span<const float> logits = all_logits();
  options_.backend->top_k(*options_.pool, logits.data(), outputs.vocab, outputs.rows, known(),
                          ranks_, top_ids_.data(), top_logits_.data(), log_sums_.data());
}

// What the network found itself.
void RowOffers::take_top() {
  const auto ranks = static_cast<size_t>(ranks_), found = static_cast<size_t>(outputs_->top.k);
  for (size_t row = 0; row < static_cast<size_t>(outputs_->rows); ++row) {
    std::ranges::copy(outputs_->top.ids.subspan(row * found, ranks), top_ids_.data() + row * ranks);
    std::ranges::copy(outputs_->top.logits.subspan(row * found, ranks),
                      top_logits_.data() + row * ranks);
    log_sums_[row] = outputs_->top.log_sums[row];
  }
}

// [rows][vocab]
std::span<const float> RowOffers::all_logits() {
  if (outputs_->source == nullptr) return outputs_->logits;
  const auto width = static_cast<size_t>(outputs_->vocab);
  fetched_.resize(static_cast<size_t>(outputs_->rows) * width);
  for (int row = 0; row < outputs_->rows; ++row) {
    std::ranges::copy(outputs_->source->fetch(row),
                      fetched_.data() + static_cast<size_t>(row) * width);
  }
  return fetched_;
}

// The row under way in the order of the target's ids.
std::span<const float> RowOffers::target_logits() {
  const std::span<const int32_t> ids = network_.target_ids();
  const std::span<const float> logits =
      network_.follows() ? std::span<const float>(followed_) : outputs_->logits_of(row_);
  if (ids.empty()) return logits.first(std::min(logits.size(), static_cast<size_t>(vocab_)));
  for (size_t i = 0; i < ids.size(); ++i) scattered_[static_cast<size_t>(ids[i])] = logits[i];
  return scattered_;
}

void RowOffers::follow(int32_t root, std::span<const int32_t> path) {
  const std::span<const float> logits = outputs_->logits_of(row_);
  std::ranges::copy(logits.first(followed_.size()), followed_.begin());
  before_.assign(1, root);
  before_.insert(before_.end(), path.begin(), path.end());
  confidence_ = network_.follow(*outputs_, row_, before_, followed_);
}

// What begin_pass() or take_best() found.
void RowOffers::take_ranked(NetworkDraft& draft, int wanted) {
  const std::span<const int32_t> ids = network_.target_ids();
  const auto first = static_cast<size_t>(row_ * ranks_);
  for (size_t i = first; i < first + static_cast<size_t>(std::min(wanted, ranks_)); ++i) {
    const auto index = static_cast<size_t>(top_ids_[i]);
    const double promised =
        std::exp(double{top_logits_[i]} - double{log_sums_[static_cast<size_t>(row_)]});
    const int32_t token = ids.empty() ? top_ids_[i] : ids[index];
    const double share = this->promised(i - first, promised);
    draft.offers.push_back({token, share});
    children_.push_back({token, draft.calibration.estimate(share)});
  }
}

// What a token of this rank promises that has such a probability. A network that knows how sure it
// is says so of the likeliest token; others share the rest, and none promises more than that one.
double RowOffers::promised(size_t rank, double probability) {
  if (confidence_ < 0.0f) return probability;
  const double sure = confidence_;
  if (rank == 0) {
    best_share_ = std::max(probability, 1e-9);
    return sure;
  }
  return probability *
         std::min((1.0 - sure) / std::max(1.0 - best_share_, 1e-9), sure / best_share_);
}

// Of the row under way alone, whose logits nobody knew before.
bool RowOffers::take_best(NetworkDraft& draft, int wanted) {
  if (options_.backend == nullptr || !draft.plain || !network_.follows()) return false;
  options_.backend->top_k(*options_.pool, followed_.data(), known(), 1, known(), ranks_,
                          top_ids_.data(), top_logits_.data(), log_sums_.data());
  row_ = 0;
  take_ranked(draft, wanted);
  return true;
}

void RowOffers::rank(NetworkDraft& draft, const SamplingContext& context, int wanted) {
  children_.clear();
  if (draft.goes_by_noise()) return rank_with_noise(draft, context, wanted);
  if (ranked_ && draft.plain) return take_ranked(draft, wanted);
  if (take_best(draft, wanted)) return;
  draft.sampler.ranking(target_logits(), context, wanted, ranking_);
  for (size_t i = 0; i < ranking_.size(); ++i) {
    const ScoredToken& token = ranking_[i];
    const double offered = promised(i, std::exp(token.score));
    draft.offers.push_back({token.id, offered});
    children_.push_back({token.id, draft.calibration.estimate(offered)});
  }
}

// Tokens that do not become children are offered and judged, too: with them one learns what the
// noise decides.
void RowOffers::rank_with_noise(NetworkDraft& draft, const SamplingContext& context, int wanted) {
  const double sharpness = draft.trust.sharpness();
  draft.sampler.ranking(target_logits(), context, wanted + kRunnersUp, ranking_, sharpness);
  const double best = ranking_[0].score;
  double total = 0.0;
  for (const ScoredToken& token : ranking_) total += draft.trust.odds(best - token.score);
  for (size_t i = 0; i < ranking_.size(); ++i) {
    const ScoredToken& token = ranking_[i];
    const double offered = promised(i, draft.trust.odds(best - token.score) / total);
    const double noise = target_gumbel(draft.sampler.noise(), context.position(), token.id);
    draft.offers.push_back({token.id, offered, {(token.score - noise) / sharpness, noise}});
    if (i >= static_cast<size_t>(wanted)) continue;
    children_.push_back({token.id, draft.calibration.estimate(offered)});
  }
}

void RowOffers::learn(NetworkDraft& draft, std::span<const DraftOffer> offers, int32_t drawn) {
  seen_.clear();
  size_t place = offers.size();
  for (size_t i = 0; i < offers.size(); ++i) {
    seen_.push_back(offers[i].seen);
    if (offers[i].token == drawn) place = i;
  }
  draft.trust.learn(seen_, place);
}

int32_t RowOffers::distribution(NetworkDraft& draft, const SamplingContext& context) {
  draft.sampler.distribution(target_logits(), context, draft.distributions[draft.drawn]);
  return static_cast<int32_t>(draft.drawn++);
}

void RowOffers::draw(NetworkDraft& draft, int32_t distribution, uint64_t root_position,
                     int wanted) {
  children_.clear();
  const Distribution& q = draft.distributions[static_cast<size_t>(distribution)];
  taken_.clear();
  for (int rank = 0; rank < wanted; ++rank) {
    const auto place =
        static_cast<uint32_t>(draft.tree.nodes().size()) + static_cast<uint32_t>(rank);
    const double uniform =
        noise_uniform(draft.sampler.noise(), NoiseStream::kDraft, root_position, place << 16);
    const int32_t token =
        rank == 0 ? inverse_cdf(q, uniform) : inverse_cdf_without(q, taken_, uniform);
    if (token < 0) return;
    taken_.push_back(token);
    const double promised = usual_rank_probability()[static_cast<size_t>(rank)];
    draft.offers.push_back({token, promised});
    children_.push_back({token, draft.calibration.estimate(promised)});
  }
}

void RowOffers::drop_unreadable() {
  std::erase_if(children_,
                [&](const LevelTree::Child& child) { return !network_.reads(child.token); });
}

}  // namespace aerie

#include "draft/auto/draft_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"

namespace aerie {
namespace {

constexpr double kKeepOnward = 1.0 - 1.0 / 200.0;

void fade(double value, double& mean, int64_t count) {
  const double rate = count == 0 ? 1.0 : std::max(0.1, 1.0 / static_cast<double>(count + 1));
  mean += rate * (value - mean);
}

int levels_of(const TokenTree& tree) {
  int deepest = 0;
  for (const TokenTree::Node& node : tree.nodes) deepest = std::max(deepest, node.depth);
  return deepest;
}

}  // namespace

UnseenNoise::UnseenNoise(const DraftSequence& sequence, const Drafter& drafter) {
  // Were each chance exact, noise g would make exp(-(1 - p) / p exp(-g)) of it. What is known is a
  // mean over tokens that are near certain and others that are not, so the odds rise less with g
  // (docs/decisions.md has figures), and the less the nearer temperature comes to 0.
  constexpr double kWeight = 0.4;
  const SamplingParams& sampling = sequence.sampling;
  const bool draws = sampling.temperature > 0.0 && sampling.top_k != 1 && sampling.top_p > 0.0;
  const bool unseen = sequence.noise == DraftNoise::kTarget && !drafter.needs().knows_noise;
  key_ = {sampling.seed, sampling.choice};
  weight_ = draws && unseen ? kWeight * std::min(1.0, sampling.temperature) : 0.0;
}

double UnseenNoise::chance(double usual, uint64_t position, int32_t token) const {
  constexpr double kMean = 0.5772156649;  // of Gumbel noise
  if (weight_ == 0.0) return usual;
  const double noise = target_gumbel(key_, position, token);
  const double odds = std::exp(weight_ * (noise - kMean)) * usual;
  return odds / (odds + 1.0 - usual);
}

double DepthRecord::estimate(int d, const DepthRecord* general) const {
  // Sequences differ less than the first few drafts for each: where these had no luck it would not
  // be asked, and nothing would show that it was luck.
  constexpr double kGeneral = 24.0;
  const FadingShare& cell = cells_[static_cast<size_t>(std::min(d, kDepths - 1))];
  return general == nullptr ? cell.estimate(hopeful_)
                            : cell.estimate(general->estimate(d, nullptr), kGeneral);
}

double DepthRecord::tokens(int depth, const DepthRecord* general) const {
  double sum = 0.0, reached = 1.0;
  for (int d = 0; d < depth; ++d) {
    reached *= estimate(d, general);
    sum += reached;
  }
  return sum;
}

void DepthRecord::learn(int d, bool stood) {
  cells_[static_cast<size_t>(std::min(d, kDepths - 1))].learn(stood, keep_);
}

void DepthRecord::grow_old(int depth) {
  constexpr double kKeep = 1.0 - 1.0 / 800.0;
  if (depth < kDepths) cells_[static_cast<size_t>(depth)].fade(kKeep);
}

void TenantRecord::measure(const TokenTree& tree, int asked) {
  const int drafted = levels_of(tree);
  if (drafted == 0) return;
  fade(static_cast<double>(tree.size()) / drafted, nodes_per_level, trees++);
  for (int d = 1; d < asked && d <= drafted; ++d) levels.learn(d, d < drafted);
}

bool ControlledDrafter::time(double call_seconds, std::span<const DraftRequest> requests,
                             double arrears, double least) {
  int deepest = 0;
  bool reads = false;
  for (const DraftRequest& request : requests) {
    deepest = std::max(deepest, levels_of(*request.tree));
    reads = reads || request.unread > 0;
  }
  if (arrears > kUsualArrears) {
    const double drafting = std::max(call.seconds(std::max(1, deepest)), least);
    reading_seconds = std::max(0.0, call_seconds - drafting) / arrears;
    if (call_seconds > 2.0 * drafting || (reads && deepest == 0)) return false;
  }
  fade(static_cast<double>(requests.size()), batch, timed);
  fade(call_seconds, seconds, timed);
  call.learn(std::max(1, deepest), call_seconds);
  ++timed;
  return true;
}

void ControlledDrafter::warn_if_dear(double plain_seconds) {
  constexpr int64_t kEnough = 4;
  constexpr double kDear = 0.25;
  const double share = call.per_level() / plain_seconds;
  if (warned || timed < kEnough || share <= kDear) return;
  warned = true;
  log(LogLevel::kWarning,
      fmt::format("drafter {}: drafting a token takes {:.2f} of the time that the model takes for "
                  "one, so little can be gained; a smaller draft model or head, draft_type=q4_0 or "
                  "draft_vocab make it faster",
                  drafter->method(), share));
}

void ControlledDrafter::forget() {
  drafter->forget();
  const bool was_warned = warned;
  *this = ControlledDrafter(std::move(drafter));
  warned = was_warned;
}

void calibrate(DraftRecord& record, const TenantRecord& general, size_t length) {
  TokenTree& tree = record.tree;
  record.claims.clear();
  for (int i = 0; i < tree.size(); ++i) record.claims.push_back(Calibration::claim(tree, i));
  for (int i = 0; i < tree.size(); ++i) {
    TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
    const double above =
        node.parent < 0
            ? 1.0
            : static_cast<double>(tree.nodes[static_cast<size_t>(node.parent)].probability);
    const double stands =
        record.calibration.estimate(record.claims[static_cast<size_t>(i)], &general.calibration);
    const size_t position = length + static_cast<size_t>(node.depth) - 1;
    node.probability =
        static_cast<float>(above * record.noise.chance(stands, position, node.token));
  }
}

int judge(std::span<const int32_t> truth, DraftRecord& record, TenantRecord& general) {
  const TokenTree& tree = record.tree;
  if (const int levels = levels_of(tree); levels > 0) {
    record.depths.grow_old(levels);
    general.depths.grow_old(levels);
  }
  int parent = -1;
  for (size_t d = 0; d < truth.size(); ++d) {
    int next = -1;
    bool leaf = true;
    for (int i = parent + 1; i < tree.size(); ++i) {
      const TokenTree::Node& node = tree.nodes[static_cast<size_t>(i)];
      if (node.parent != parent || node.role != NodeRole::kDraft) continue;
      leaf = false;
      const bool stood = node.token == truth[d];
      if (stood && next < 0) next = i;
      record.calibration.learn(record.claims[static_cast<size_t>(i)], stood);
      general.calibration.learn(record.claims[static_cast<size_t>(i)], stood);
    }
    if (leaf && (d == 0 || static_cast<int>(d) >= record.asked)) return static_cast<int>(d);
    if (d > 0 && !leaf) general.onward.learn(next >= 0, kKeepOnward);
    record.depths.learn(static_cast<int>(d), next >= 0);
    general.depths.learn(static_cast<int>(d), next >= 0);
    if (next < 0) return static_cast<int>(d);
    parent = next;
  }
  return static_cast<int>(truth.size());
}

}  // namespace aerie

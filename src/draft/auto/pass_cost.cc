#include "draft/auto/pass_cost.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "core/random_tokens.h"
#include "kv/chain_rows.h"

namespace aerie {
namespace {

// What one pass moves: all estimates together, as when the machine gets busy, and those of about
// its number of rows alone.
constexpr double kSharedRate = 0.05;
constexpr double kOwnRate = 0.02;
// A pass that took longer than this times what was expected was disturbed.
constexpr double kMostSurprise = 1.3;
// Experts are counted, not timed: a few passes tell how many rows have in common.
constexpr double kExpertHorizon = 32.0;
constexpr double kMostExpertShare = 2.0;

}  // namespace

PassCost::PassCost(std::vector<Point> points) : points_(std::move(points)) {
  assert(!points_.empty());
}

PassCost::Place PassCost::place(double rows) const {
  if (points_.size() == 1) return {0, 0, 0.0};
  size_t above = 1;
  while (above + 1 < points_.size() && points_[above].rows < rows) ++above;
  const Point& low = points_[above - 1];
  const Point& high = points_[above];
  const double share = (rows - low.rows) / (high.rows - low.rows);
  return {above - 1, above, std::max(0.0, share)};
}

double PassCost::between(double rows, double Point::*what) const {
  const Place at = place(rows);
  const double low = points_[at.below].*what;
  return low + at.share * (points_[at.above].*what - low);
}

double PassCost::further_experts(int rows) const {
  return std::max(0.0, between(rows, &Point::experts) - points_[0].experts);
}

double PassCost::seconds(const Pass& pass) const {
  return seconds(pass, expert_share_);
}

double PassCost::seconds(const Pass& pass, double expert_share) const {
  const double sequences = pass.sequences;
  const double position = between(pass.rows / sequences, &Point::seconds_per_position);
  const double shared = (1.0 - expert_share) * further_experts(pass.rows) *
                        between(pass.rows, &Point::seconds_per_expert);
  // However much they share, they are no cheaper than one row.
  const double weights = std::max(between(pass.rows, &Point::seconds) - shared, points_[0].seconds);
  return std::max(weights + sequences * position * pass.context, 1e-9);
}

void PassCost::learn(const Pass& pass, double seconds, int64_t experts) {
  if (!(seconds > 0)) return;
  // The pass is judged by what it read, not by what others read.
  double share = expert_share_;
  const double further = further_experts(pass.rows);
  if (experts > 0 && further >= 1.0) {
    share = std::clamp((static_cast<double>(experts) - points_[0].experts) / further, 0.0,
                       kMostExpertShare);
    expert_share_ += (share - expert_share_) / std::min(++passes_with_experts_, kExpertHorizon);
  }
  const double most = std::log(kMostSurprise);
  const double surprise = std::clamp(std::log(seconds / this->seconds(pass, share)), -most, most);
  const Place at = place(pass.rows);
  const double of_above = std::min(at.share, 1.0);
  for (size_t i = 0; i < points_.size(); ++i) {
    double rate = kSharedRate;
    if (i == at.below) rate += kOwnRate * (1.0 - of_above);
    if (i == at.above) rate += kOwnRate * of_above;
    const double factor = std::exp(rate * surprise);
    points_[i].seconds *= factor;
    points_[i].seconds_per_position *= factor;
    points_[i].seconds_per_expert *= factor;
  }
}

namespace {

// Passes over a sequence whose entries hold whatever the cache held: their values do not matter.
class Stopwatch {
 public:
  Stopwatch(Model& model, KvCache& cache, KvCache::Id id) : model_(model), cache_(cache), id_(id) {}

  // The shorter of two passes, of tokens all alike or random.
  Expected<double> seconds(int rows, int context, bool alike = false) {
    double least = 0;
    for (int i = 0; i < 2; ++i) {
      AERIE_RETURN_IF_ERROR(make_batch(rows, context, alike));
      const auto start = steady_now();
      const ForwardOutputs outputs = model_.forward(batch_, cache_);
      const double took = seconds_since(start);
      AERIE_RETURN_IF_ERROR(outputs.status);
      experts_ = outputs.experts;
      least = i == 0 ? took : std::min(least, took);
    }
    return least;
  }
  // That the last pass read.
  double experts() const { return static_cast<double>(experts_); }

 private:
  // Behind a row that states have not taken in yet, as after a round.
  Status make_batch(int rows, int context, bool alike) {
    cache_.truncate(id_, 0);
    AERIE_RETURN_IF_ERROR(cache_.assume(id_, std::max(0, context - 1)));
    AERIE_RETURN_IF_ERROR(cache_.reserve(id_, rows + 1));
    cache_.commit_first(id_, std::min(context, 1));
    batch_.clear();
    for (BatchRow& row : add_chain(batch_, cache_, id_, rows)) {
      row.wants_logits = true;
      if (!alike) row.token = tokens_.next(model_.config().vocab);
    }
    return {};
  }

  Model& model_;
  KvCache& cache_;
  KvCache::Id id_;
  ForwardBatch batch_;
  RandomTokens tokens_;
  int64_t experts_ = 0;
};

// Rows to measure, in this order. Drafts for one sequence and for some are decided between 1 and
// 16; beyond 64 every row costs the same.
std::vector<int> rows_to_measure(int max_rows) {
  std::vector<int> order;
  for (const int rows : {1, 16, 4, 64, 8, 2, 32, 12}) {
    const int fit = std::min(rows, max_rows);
    if (std::ranges::find(order, fit) == order.end()) order.push_back(fit);
  }
  return order;
}

// What reading an expert costs: rows that are alike read fewer of them in a shorter time.
Status price_experts(Stopwatch& watch, int context, std::vector<PassCost::Point>& points) {
  if (points.size() < 2 || points[0].experts == 0.0) return {};
  const PassCost::Point& many = points[1];
  AERIE_ASSIGN_OR_RETURN(const double alike, watch.seconds(many.rows, context, true));
  const double fewer = many.experts - watch.experts();
  if (fewer < 1.0) return {};
  const double price = std::max(0.0, many.seconds - alike) / fewer;
  for (PassCost::Point& point : points) point.seconds_per_expert = price;
  return {};
}

Expected<PassCost> measure(Stopwatch& watch, int room, const PassCostLimits& limits) {
  constexpr int kNear = 16;  // positions of the shorter context
  const auto start = steady_now();
  const auto spent = [&] { return seconds_since(start); };
  const int most = std::min(limits.max_rows, std::max(1, room - kNear));
  const int near = std::min(kNear, room - most);
  // Few rows in a long context give what a position costs; all rows read the same keys.
  const int far = std::min(2048, room - most);
  AERIE_RETURN_IF_ERROR(watch.seconds(1, near).status());  // to warm up
  std::vector<PassCost::Point> points;
  for (const int rows : rows_to_measure(most)) {
    if (points.size() >= 2 && spent() > 0.7 * limits.budget_seconds) break;
    AERIE_ASSIGN_OR_RETURN(const double seconds, watch.seconds(rows, near));
    points.push_back({rows, seconds, 0.0, watch.experts(), 0.0});
  }
  AERIE_RETURN_IF_ERROR(price_experts(watch, near, points));
  if (far >= near + 256) {
    for (size_t i = 0; i < std::min<size_t>(2, points.size()); ++i) {
      AERIE_ASSIGN_OR_RETURN(const double seconds, watch.seconds(points[i].rows, far));
      points[i].seconds_per_position = std::max(0.0, seconds - points[i].seconds) / (far - near);
    }
  }
  const PassCost::Point one = points[0], all = points[std::min<size_t>(1, points.size() - 1)];
  std::ranges::sort(
      points, [](const PassCost::Point& a, const PassCost::Point& b) { return a.rows < b.rows; });
  for (size_t i = 0; i < points.size(); ++i) {
    PassCost::Point& point = points[i];
    if (all.rows > 1) {
      const double share = (point.rows - 1.0) / (all.rows - 1.0);
      point.seconds_per_position =
          one.seconds_per_position + share * (all.seconds_per_position - one.seconds_per_position);
    }
    point.seconds = std::max(point.seconds - point.seconds_per_position * near, 1e-9);
    // More rows never cost less; where it seems so, something came in between.
    if (i > 0) point.seconds = std::max(point.seconds, points[i - 1].seconds);
  }
  return PassCost(std::move(points));
}

}  // namespace

Expected<PassCost> measure_pass_cost(Model& model, KvCache& cache, const PassCostLimits& limits) {
  assert(limits.max_rows >= 1);
  AERIE_ASSIGN_OR_RETURN(const KvCache::Id id, cache.open());
  const auto room = static_cast<int>(
      std::min<int64_t>({cache.positions(), model.config().context, limits.max_positions}));
  Stopwatch watch(model, cache, id);
  Expected<PassCost> cost = measure(watch, room, limits);
  cache.close(id);
  return cost;
}

}  // namespace aerie

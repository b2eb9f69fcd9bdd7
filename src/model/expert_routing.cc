#include "model/expert_routing.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace aerie {

namespace {

// The `count` of n values that are largest, the largest first and of equals the one with the
// smaller index. NaN is not above anything, so it is chosen last. Of those for which may(i) holds,
// which are as many at least.
template <typename Value, typename May>
void choose_largest(size_t n, int count, const Value& value, const May& may, int32_t* chosen) {
  int found = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!may(i)) continue;
    const auto own = value(i);
    const auto above = [&](int32_t index) {
      const auto other = value(static_cast<size_t>(index));
      return own > other || (std::isnan(other) && !std::isnan(own));
    };
    int at = found;
    while (at > 0 && above(chosen[at - 1])) --at;
    if (at == count) continue;
    found = std::min(found + 1, count);
    std::copy_backward(chosen + at, chosen + found - 1, chosen + found);
    chosen[at] = static_cast<int32_t>(i);
  }
}

double sigmoid(float x) {
  return 1.0 / (1.0 + std::exp(-double{x}));
}

// Shares of softmax over all logits, or over the chosen, of which the first is the largest.
void weigh_by_softmax(std::span<const float> logits, bool normalized, int used,
                      const int32_t* chosen, double scale, float* weights) {
  const auto logit = [&](int i) { return double{logits[static_cast<size_t>(chosen[i])]}; };
  double largest = logit(0), sum = 0.0;
  if (normalized) {
    for (int i = 0; i < used; ++i) sum += std::exp(logit(i) - largest);
  } else {
    // What is in no group that is used may be larger.
    for (const float value : logits) largest = std::max(largest, double{value});
    for (const float value : logits) sum += std::exp(double{value} - largest);
  }
  for (int i = 0; i < used; ++i) {
    weights[i] = static_cast<float>(std::exp(logit(i) - largest) / sum * scale);
  }
}

void weigh_by_sigmoid(std::span<const float> logits, bool normalized, int used,
                      const int32_t* chosen, double scale, float* weights) {
  constexpr double kLeast = 1e-20;  // so that sigmoids of 0 can be divided by their sum
  const auto score = [&](int i) { return sigmoid(logits[static_cast<size_t>(chosen[i])]); };
  double sum = 0.0;
  for (int i = 0; i < used; ++i) sum += score(i);
  const double factor = normalized ? scale / (sum + kLeast) : scale;
  for (int i = 0; i < used; ++i) weights[i] = static_cast<float>(score(i) * factor);
}

// choose_largest() among the experts of the best groups. `score` is what is compared.
template <typename Score>
void choose_in_groups(size_t experts, const ExpertRouter& router, const Score& score, int used,
                      int32_t* chosen) {
  const size_t groups = static_cast<size_t>(router.groups), size = experts / groups;
  double worth[kMostExpertGroups];
  for (size_t g = 0; g < groups; ++g) {
    double best = -INFINITY, second = -INFINITY;
    for (size_t e = g * size; e < (g + 1) * size; ++e) {
      const double value = score(e);
      second = std::max(second, std::min(best, value));
      best = std::max(best, value);
    }
    worth[g] = router.by_best_two && size > 1 ? best + second : best;
  }
  int32_t taken[kMostExpertGroups];
  bool is_taken[kMostExpertGroups] = {};
  choose_largest(
      groups, router.used_groups, [&](size_t g) { return worth[g]; }, [](size_t) { return true; },
      taken);
  for (int i = 0; i < router.used_groups; ++i) is_taken[taken[i]] = true;
  choose_largest(
      experts, used, score, [&](size_t e) { return is_taken[e / size]; }, chosen);
}

}  // namespace

void choose_experts(std::span<const float> logits, const ExpertRouter& router,
                    const float* corrections, int used, int32_t* chosen, float* weights) {
  assert(used >= 1 && static_cast<size_t>(used) <= logits.size());
  assert(router.groups <= kMostExpertGroups);
  const bool is_sigmoid = router.score == ExpertRouter::Score::kSigmoid;
  assert(is_sigmoid || (corrections == nullptr && !router.by_best_two));
  // Softmax leaves logits in their order.
  const auto score = [&](size_t e) {
    if (!is_sigmoid) return double{logits[e]};
    return sigmoid(logits[e]) + (corrections != nullptr ? double{corrections[e]} : 0.0);
  };
  if (router.groups > 1) {
    choose_in_groups(logits.size(), router, score, used, chosen);
  } else {
    choose_largest(
        logits.size(), used, score, [](size_t) { return true; }, chosen);
  }
  (is_sigmoid ? weigh_by_sigmoid : weigh_by_softmax)(logits, router.normalized, used, chosen,
                                                     router.scale, weights);
}

ExpertRouting::ExpertRouting(int max_rows, int experts, int used) : count_(experts), used_(used) {
  const auto pairs = static_cast<size_t>(max_rows) * static_cast<size_t>(used);
  for (std::vector<int32_t>* list : {&chosen_, &places_, &rows_}) list->reserve(pairs);
  weights_.reserve(pairs);
  ends_.resize(static_cast<size_t>(experts) + 1);
  experts_.reserve(static_cast<size_t>(experts));
  groups_.reserve(static_cast<size_t>(experts));
}

void ExpertRouting::route(const float* logits, int64_t rows, const ExpertRouter& router,
                          const float* corrections, float scale) {
  const auto pairs = static_cast<size_t>(rows * used_);
  for (std::vector<int32_t>* list : {&chosen_, &places_, &rows_}) list->resize(pairs);
  weights_.resize(pairs);
  experts_.clear();
  groups_.clear();
  for (int64_t r = 0; r < rows; ++r) {
    choose_experts({logits + r * count_, static_cast<size_t>(count_)}, router, corrections, used_,
                   chosen_.data() + r * used_, weights_.data() + r * used_);
  }
  for (float& weight : weights_) weight *= scale;
  // Sorted by counting: first how many pairs an expert has, then where its next one goes.
  std::ranges::fill(ends_, 0);
  for (const int32_t expert : chosen_) ++ends_[static_cast<size_t>(expert) + 1];
  for (int32_t expert = 0; expert < count_; ++expert) {
    const auto at = static_cast<size_t>(expert);
    if (ends_[at + 1] > 0) {
      experts_.push_back(expert);
      groups_.push_back({ends_[at], ends_[at + 1]});
    }
    ends_[at + 1] += ends_[at];
  }
  for (size_t i = 0; i < pairs; ++i) {
    const int32_t place = ends_[static_cast<size_t>(chosen_[i])]++;
    places_[i] = place;
    rows_[static_cast<size_t>(place)] = static_cast<int32_t>(i) / used_;
  }
}

}  // namespace aerie

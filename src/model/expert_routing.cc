#include "model/expert_routing.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace aerie {

void choose_experts(std::span<const float> logits, int used, bool normalized, int32_t* chosen,
                    float* weights) {
  assert(used >= 1 && static_cast<size_t>(used) <= logits.size());
  // NaN is not above anything, so it is chosen last.
  int count = 0;
  for (size_t e = 0; e < logits.size(); ++e) {
    const auto above = [&](int32_t other) {
      return logits[e] > logits[static_cast<size_t>(other)] ||
             (std::isnan(logits[static_cast<size_t>(other)]) && !std::isnan(logits[e]));
    };
    int at = count;
    while (at > 0 && above(chosen[at - 1])) --at;
    if (at == used) continue;
    count = std::min(count + 1, used);
    std::copy_backward(chosen + at, chosen + count - 1, chosen + count);
    chosen[at] = static_cast<int32_t>(e);
  }
  const auto logit = [&](int i) { return double{logits[static_cast<size_t>(chosen[i])]}; };
  const double largest = logit(0);
  double sum = 0.0;
  if (normalized) {
    for (int i = 0; i < used; ++i) sum += std::exp(logit(i) - largest);
  } else {
    for (const float value : logits) sum += std::exp(double{value} - largest);
  }
  for (int i = 0; i < used; ++i) {
    weights[i] = static_cast<float>(std::exp(logit(i) - largest) / sum);
  }
}

ExpertRouting::ExpertRouting(int max_rows, int experts, int used) : count_(experts), used_(used) {
  const auto pairs = static_cast<size_t>(max_rows) * static_cast<size_t>(used);
  for (std::vector<int32_t>* list : {&chosen_, &places_, &rows_}) list->reserve(pairs);
  weights_.reserve(pairs);
  ends_.resize(static_cast<size_t>(experts) + 1);
  experts_.reserve(static_cast<size_t>(experts));
  groups_.reserve(static_cast<size_t>(experts));
}

void ExpertRouting::route(const float* logits, int64_t rows, bool normalized, float scale) {
  const auto pairs = static_cast<size_t>(rows * used_);
  for (std::vector<int32_t>* list : {&chosen_, &places_, &rows_}) list->resize(pairs);
  weights_.resize(pairs);
  experts_.clear();
  groups_.clear();
  for (int64_t r = 0; r < rows; ++r) {
    choose_experts({logits + r * count_, static_cast<size_t>(count_)}, used_, normalized,
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

#include "train/methods/training_method.h"

#include <fmt/format.h>

#include <algorithm>

namespace aerie::train {

void Figures::merge(const Figures& other) {
  weight += other.weight;
  seconds.add(other.seconds);
  for (const auto& [name, sum] : other.sums) {
    const auto same = std::find_if(sums.begin(), sums.end(),
                                   [&name](const auto& entry) { return entry.first == name; });
    if (same == sums.end()) {
      sums.emplace_back(name, sum);
    } else {
      same->second += sum;
    }
  }
}

DraftSettings DraftSettings::of(std::string_view drafter, int64_t tokens) {
  return {fmt::format("{}:model={{}},num_speculative_tokens={}", drafter, tokens)};
}

}  // namespace aerie::train

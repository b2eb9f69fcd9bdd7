// Which values of several factors are tried together, where all combinations would be too many.
#pragma once

#include <cstddef>
#include <vector>

namespace aerie {

// Every combination of the first factors' values, several times; the other factors' values are
// chosen so that as many pairs of values as possible come together that have not yet.
class PairwisePlan {
 public:
  using Combination = std::vector<int>;  // of each factor the number of its value

  // `sizes`: the values of each factor. Of the first `full` of them every combination comes
  // `times` times.
  PairwisePlan(std::vector<int> sizes, size_t full, int times);

  const std::vector<Combination>& combinations() const { return combinations_; }
  // Whether every value of a factor comes with every value of every other.
  bool covers_all_pairs() const { return covered_ == all_pairs_; }

 private:
  char& met(const Combination& c, size_t i, size_t j);
  int new_pairs(const Combination& c);

  std::vector<int> sizes_, offsets_;
  int values_ = 0;  // of all factors
  std::vector<Combination> combinations_;
  std::vector<char> met_;  // [value][value]
  int covered_ = 0, all_pairs_ = 0;
};

}  // namespace aerie

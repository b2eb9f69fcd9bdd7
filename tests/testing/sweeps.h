// Sweeps of tests: which of many combinations are tried where, and that those left out in one test
// are tried in another.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <ranges>
#include <string>
#include <vector>

#include "tests/testing/nightly.h"
#include "tests/testing/sanitized.h"

namespace aerie::test {

// Whether sweeps are thinned out: on an emulated processor (where ctest sets AERIE_EMULATED) and
// with sanitizers, where they take twenty to fifty times as long. Not if AERIE_WHOLE_SWEEPS is set.
inline bool thinned() {
  static const bool yes = (std::getenv("AERIE_EMULATED") != nullptr || kSanitized) &&
                          std::getenv("AERIE_WHOLE_SWEEPS") == nullptr;
  return yes;
}

// A number that differs from test to test and parameter to parameter, but not from run to run.
inline size_t turn_of_test() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  size_t hash = 0;
  for (const char c : std::string(test.test_suite_name()) + test.name()) {
    hash = hash * 31 + static_cast<unsigned char>(c);
  }
  return hash;
}

// The items of a sweep: all, or `most` of them if sweeps are thinned out. Which ones depends on the
// test, so that the tests together leave none out.
template <typename Range, typename T = std::ranges::range_value_t<Range>>
std::vector<T> sampled(const Range& items, size_t most) {
  const std::vector<T> all(std::ranges::begin(items), std::ranges::end(items));
  if (!thinned() || all.size() <= most) return all;
  std::vector<T> some;
  for (size_t i = 0; i < most; ++i) {
    some.push_back(all[(turn_of_test() + i * all.size() / most) % all.size()]);
  }
  return some;
}
template <typename T>
std::vector<T> sampled(std::initializer_list<T> items, size_t most) {
  return sampled(std::vector<T>(items), most);
}

// Whether a combination of a sweep is tried: by day every `share`th is, counted from another one in
// each test; at night all are, and of sweeps that are thinned out.
inline bool in_turn(size_t combination, size_t share) {
  return nightly() || thinned() || (combination + turn_of_test()) % share == 0;
}

// By day the one of the items whose turn it is, at night all: of settings that each meet all others
// in some test.
template <typename T>
std::vector<T> in_turns(std::initializer_list<T> items, size_t turn) {
  if (nightly()) return items;
  return {items.begin()[turn % items.size()]};
}

}  // namespace aerie::test

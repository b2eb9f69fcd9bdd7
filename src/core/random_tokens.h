// Tokens for passes that are timed: any will do, as long as they differ.
#pragma once

#include <cstdint>

namespace aerie {

class RandomTokens {
 public:
  // From 0 to vocab - 1.
  int32_t next(int vocab) {
    state_ = state_ * 1664525 + 1013904223;  // Numerical Recipes, 2nd ed., section 7.1
    return static_cast<int32_t>(uint64_t{state_} * static_cast<uint64_t>(vocab) >> 32);
  }

 private:
  uint32_t state_ = 1;
};

}  // namespace aerie

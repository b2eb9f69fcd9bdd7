// The likeliest token after a row.
#pragma once

#include <cstdint>

namespace aerie {

// Ties go to the smaller id. NaN counts as -infinity.
struct BestToken {
  int32_t id = -1;  // -1: every logit is -infinity
  float logit = 0;
};

}  // namespace aerie

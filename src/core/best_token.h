// The likeliest token after a row.
#pragma once

#include <cstdint>
#include <span>

namespace aerie {

// Ties go to the smaller id. NaN counts as -infinity.
struct BestToken {
  int32_t id = -1;  // -1: every logit is -infinity
  float logit = 0;
};

// The likeliest few after each of some rows, the likeliest first: what kernels::Backend::top_k()
// gives of their logits.
struct TopTokens {
  int k = 0;                        // of a row; 0: nobody has looked for them
  std::span<const int32_t> ids;     // [rows][k]
  std::span<const float> logits;    // the same
  std::span<const float> log_sums;  // [rows]
};

}  // namespace aerie

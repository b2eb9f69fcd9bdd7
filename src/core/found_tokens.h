// Tokens that a device finds before the host knows them, as the best ones behind rows of a draft:
// what a pass needs that is put behind that draft at once.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace aerie {

struct FoundTokens {
  // In the device's memory, there and where it is as long as what finds the tokens.
  struct Place {
    const float* found = nullptr;  // device::Top::out of rows, with each == 1
    int64_t stride = 0;            // floats from row to row
    // [tokens][the target's hidden]: what its passes begin with for the token of a logit.
    const float* table = nullptr;
    int tokens = 0;

    auto operator<=>(const Place&) const = default;
  };
  Place device;
  // Of the host, there until tokens are found again: what is found, [row], once the draft has been
  // waited for; and the target's ids of the logits, empty: logit i is token i.
  const int32_t* logits = nullptr;
  std::span<const int32_t> target_ids;

  // The one behind a row; -1: none.
  int32_t token(int32_t row) const {
    const int32_t logit = logits[row];
    if (logit < 0 || logit >= device.tokens) return -1;
    return target_ids.empty() ? logit : target_ids[static_cast<size_t>(logit)];
  }
};

}  // namespace aerie

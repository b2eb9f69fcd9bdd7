// Tokens that a device finds before the host knows them, as the best ones behind rows of a draft:
// what a pass needs that is put behind that draft at once.
#pragma once

#include <compare>
#include <cstdint>
#include <cstring>
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
  // The host's copy of what is found, once the draft has been waited for; and the target's ids of
  // the logits, empty: logit i is token i.
  const float* host = nullptr;
  std::span<const int32_t> target_ids;

  // The one behind a row, by the host's copy; -1: none.
  int32_t token(int32_t row) const {
    int32_t logit;
    std::memcpy(&logit, host + row * device.stride, sizeof logit);
    if (logit < 0 || logit >= device.tokens) return -1;
    return target_ids.empty() ? logit : target_ids[static_cast<size_t>(logit)];
  }
};

}  // namespace aerie

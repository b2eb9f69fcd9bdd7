#include "draft/lookup/lookup_keys.h"

#include <fmt/format.h>

#include "draft/method_settings.h"

namespace aerie {

Status check_lookup(MethodConfig& config) {
  const int least = config.whole(kShortestKey), most = config.whole(kLongestKey);
  if (least <= most) return {};
  const bool given = config.numbers.contains(kLongestKey);
  return invalid(fmt::format("'{}' {} is above '{}' {}{}", kShortestKey, least, kLongestKey, most,
                             given ? "" : ", its default: set that too"));
}

// What counts promise is too good: where one continuation was seen, however often, it was right in
// 0.25, 0.48, 0.60, 0.65, 0.68 of the cases after matches of 1 to 5 tokens and in 0.8 after 8 (56
// answers of SmolLM2-135M-Instruct: summaries, code, questions, sums; half of them greedy, half at
// temperature 0.8). That is r / (r + 2) after r tokens that agree, and this the product over a
// path.
double lookup_trust(int m, int depth) {
  const double end = m + depth;
  return m * (m + 1.0) / (end * (end + 1.0));
}

}  // namespace aerie

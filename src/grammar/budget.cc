#include "grammar/budget.h"

#include <fmt/format.h>

namespace aerie::grammar {

Status Budget::status() const {
  if (!spent()) return {};
  if (stopped_) return {StatusCode::kCancelled, "the constraint is not wanted any more"};
  const bool memory = bytes_ > max_bytes_;
  return {
      StatusCode::kResourceExhausted,
      memory ? fmt::format("the constraint needs more than {} MiB to be prepared", max_bytes_ >> 20)
             : fmt::format("the constraint needs more than {} million steps to be prepared",
                           max_steps_ / 1'000'000)};
}

}  // namespace aerie::grammar

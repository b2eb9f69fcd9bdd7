#include "train/data/duration_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace aerie::train {

std::string duration_text(double seconds) {
  if (!(seconds < 1e9)) return "a long time";
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace aerie::train

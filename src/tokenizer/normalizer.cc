#include "tokenizer/normalizer.h"

namespace aerie {

Expected<std::string_view> Normalizer::apply(std::string_view text, Place place,
                                             std::string& buffer) const {
  std::string other;
  std::string_view now = text;
  for (const auto& step : steps_) {
    if (now.empty()) break;
    other.clear();
    AERIE_RETURN_IF_ERROR(step->apply(now, place, other));
    std::swap(buffer, other);
    now = buffer;
  }
  return now;
}

}  // namespace aerie

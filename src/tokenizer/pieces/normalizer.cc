#include "tokenizer/pieces/normalizer.h"

#include "base/errors.h"

namespace aerie {
namespace {

// Steps may make a text longer, each what the one before it made: hostile ones without end.
constexpr size_t kMostGrowth = 64;
constexpr size_t kMostBytes = 65536;

}  // namespace

Expected<std::string_view> Normalizer::apply(std::string_view text, Place place,
                                             std::string& buffer) const {
  std::string other;
  std::string_view now = text;
  for (const auto& step : steps_) {
    if (now.empty()) break;
    other.clear();
    AERIE_RETURN_IF_ERROR(step->apply(now, place, other));
    if (other.size() / kMostGrowth > text.size() && other.size() > kMostBytes) {
      return resource_exhausted(
          "the tokenizer's normaliser makes this text more than 64 times as long");
    }
    std::swap(buffer, other);
    now = buffer;
  }
  return now;
}

}  // namespace aerie

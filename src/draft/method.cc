#include "draft/method.h"

#include <algorithm>
#include <array>

namespace aerie {
namespace {

using Kind = MethodKey::Kind;

constexpr double kMost = 64;  // of most counts

constexpr MethodKey tokens(double fallback) {
  return {
      kTokensKey, Kind::kWhole, 1, kMost, fallback, false, "the most tokens to draft in a round"};
}

constexpr std::array kNgramKeys = {
    MethodKey{"prompt_lookup_max", Kind::kWhole, 1, kMost, 3, false, "the longest n"},
    MethodKey{"prompt_lookup_min", Kind::kWhole, 1, kMost, 1, false, "the shortest n"},
    tokens(10),
};

constexpr std::array kDraftModelKeys = {
    MethodKey{"model", Kind::kText, 0, 0, 0, true, "the draft model's file"},
    tokens(5),
};

constexpr std::array kMethods = {
    Method{"ngram", kNgramKeys, "what followed the last words where they stood before"},
    Method{"draft_model", kDraftModelKeys, "a smaller model with the same vocabulary"},
};

}  // namespace

const MethodKey* Method::find(std::string_view key) const {
  const auto found = std::find_if(
      keys.begin(), keys.end(), [&](const MethodKey& candidate) { return candidate.name == key; });
  return found == keys.end() ? nullptr : &*found;
}

std::span<const Method> methods() {
  return kMethods;
}

const Method* find_method(std::string_view name) {
  const auto found = std::find_if(kMethods.begin(), kMethods.end(),
                                  [&](const Method& method) { return method.name == name; });
  return found == kMethods.end() ? nullptr : &*found;
}

bool is_method_key(std::string_view key) {
  return std::any_of(kMethods.begin(), kMethods.end(),
                     [&](const Method& method) { return method.find(key) != nullptr; });
}

}  // namespace aerie

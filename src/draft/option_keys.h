// Keys of a method that are fields of its options: name, range, default (the field's own) and
// meaning stand in one line.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "draft/method.h"

namespace aerie {

template <typename Options>
struct OptionKey {
  MethodKey key;
  // One of them.
  int Options::*whole = nullptr;
  double Options::*fraction = nullptr;
  bool Options::*flag = nullptr;
};

template <typename Options>
constexpr OptionKey<Options> option_key(std::string_view name, int Options::*field, double least,
                                        double most, std::string_view what) {
  const MethodKey key = {
      name, MethodKey::Kind::kWhole, least, most, 1.0 * (Options().*field), false, what};
  return {.key = key, .whole = field};
}

template <typename Options>
constexpr OptionKey<Options> option_key(std::string_view name, double Options::*field, double least,
                                        double most, std::string_view what) {
  const MethodKey key = {name, MethodKey::Kind::kFraction, least, most, Options().*field, false,
                         what};
  return {.key = key, .fraction = field};
}

// 0 or 1.
template <typename Options>
constexpr OptionKey<Options> option_key(std::string_view name, bool Options::*field,
                                        std::string_view what) {
  const MethodKey key = {name, MethodKey::Kind::kWhole, 0, 1, Options().*field ? 1.0 : 0.0, false,
                         what};
  return {.key = key, .flag = field};
}

inline constexpr double kMostOfMethods = 64;  // of most counts

// kTokensKey.
template <typename Options>
constexpr OptionKey<Options> tokens_key(
    int Options::*field, double most = kMostOfMethods,
    std::string_view what = "the most tokens to draft in a round") {
  return option_key(kTokensKey, field, 1, most, what);
}

template <typename Options, size_t N>
constexpr std::array<MethodKey, N> keys_of(const std::array<OptionKey<Options>, N>& options) {
  std::array<MethodKey, N> keys = {};
  for (size_t i = 0; i < N; ++i) keys[i] = options[i].key;
  return keys;
}

template <size_t N, size_t M>
constexpr std::array<MethodKey, N + M> joined(const std::array<MethodKey, N>& a,
                                              const std::array<MethodKey, M>& b) {
  std::array<MethodKey, N + M> all = {};
  std::copy(a.begin(), a.end(), all.begin());
  std::copy(b.begin(), b.end(), all.begin() + N);
  return all;
}

// Sets the fields to what was given, or to the defaults of the keys.
template <typename Options, size_t N>
void read_options(const MethodConfig& config, const std::array<OptionKey<Options>, N>& keys,
                  Options& options) {
  for (const OptionKey<Options>& one : keys) {
    if (one.whole != nullptr) options.*one.whole = config.whole(one.key.name);
    if (one.fraction != nullptr) options.*one.fraction = config.number(one.key.name);
    if (one.flag != nullptr) options.*one.flag = config.whole(one.key.name) != 0;
  }
}

}  // namespace aerie

#include "sampling/filters.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/clones.h"
#include "sampling/weight.h"

namespace aerie {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr size_t kBlock = 64;
constexpr uint32_t kSign = 0x80000000;

// Of `count` logits, a multiple of kLanes; NaN is above nothing. In chains of vectors, since
// compilers make single numbers of arrays, as they do of vectors wider than the processor's.
constexpr size_t kLanes = 64;
AERIE_CLONES float largest(const float* logits, size_t count) {
  using Vector = float __attribute__((vector_size(32)));
  constexpr size_t kWidth = sizeof(Vector) / sizeof(float), kChains = kLanes / kWidth;
  Vector lanes[kChains];
  for (Vector& lane : lanes) lane = Vector{} - kInfinite;
  for (size_t i = 0; i < count; i += kLanes) {
    for (size_t chain = 0; chain < kChains; ++chain) {
      Vector x;  // logits may lie anywhere
      std::memcpy(&x, logits + i + chain * kWidth, sizeof(x));
      lanes[chain] = x > lanes[chain] ? x : lanes[chain];
    }
  }
  for (size_t half = kChains / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) {
      lanes[i] = lanes[i + half] > lanes[i] ? lanes[i + half] : lanes[i];
    }
  }
  float best = lanes[0][0];
  for (size_t i = 1; i < kWidth; ++i) best = lanes[0][i] > best ? lanes[0][i] : best;
  return best;
}

// NaN is above nothing. A loop without exits, for the compiler to vectorise.
AERIE_CLONES bool any_above(const float* logits, size_t count, float threshold) {
  int any = 0;
  for (size_t i = 0; i < count; ++i) any |= static_cast<int>(logits[i] > threshold);
  return any != 0;
}

// Calls fn(id) for logits above `threshold`, by ascending id; fn may raise the threshold.
template <typename Fn>
void for_each_above(std::span<const float> logits, const float& threshold, const Fn& fn) {
  for (size_t first = 0; first < logits.size(); first += kBlock) {
    const size_t count = std::min(kBlock, logits.size() - first);
    if (!any_above(logits.data() + first, count, threshold)) continue;
    for (size_t i = first; i < first + count; ++i) {
      if (logits[i] > threshold) fn(i);
    }
  }
}

double weight_of(TokenKey key, float best, double temperature) {
  return exp_nonpositive(scaled_logit(token_key_logit(key), best, temperature));
}

// The length of the shortest run of `keys` (likeliest first) that weighs at least `mass`; 0 if even
// all of them weigh less.
size_t nucleus_length(std::span<const TokenKey> keys, float best, double temperature, double mass) {
  double sum = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    sum += weight_of(keys[i], best, temperature);
    if (sum >= mass) return i + 1;
  }
  return 0;
}

void sort_likeliest_first(std::vector<TokenKey>& keys) {
  std::ranges::sort(keys, std::greater<>());
}

void filter_top_p_of_keys(float best, const SamplingParams& params, std::vector<TokenKey>& keys) {
  sort_likeliest_first(keys);
  double total = 0;
  for (const TokenKey key : keys) total += weight_of(key, best, params.temperature);
  const size_t length = nucleus_length(keys, best, params.temperature, params.top_p * total);
  if (length > 0) keys.resize(length);
}

// Sorts no more than a few times what it keeps: a nucleus is usually a small part of a vocabulary.
void filter_top_p_of_all(std::span<const float> logits, float best, const SamplingParams& params,
                         std::vector<TokenKey>& keys) {
  const double mass = params.top_p * sum_weights(logits, best, params.temperature);
  for (size_t k = 256;; k *= 8) {
    select_top(logits, k, keys);
    sort_likeliest_first(keys);
    const size_t length = nucleus_length(keys, best, params.temperature, mass);
    if (length > 0) keys.resize(length);
    if (length > 0 || keys.size() < k) return;
  }
}

// A logit below which a token surely weighs less than min_p; the exact comparison follows.
float min_p_floor(float best, const SamplingParams& params) {
  const double floor = best + params.temperature * (std::log(params.min_p) - 0.01);
  if (!(floor > -std::numeric_limits<float>::max())) return -kInfinite;
  return std::nextafter(static_cast<float>(floor), -kInfinite);
}

}  // namespace

TokenKey token_key(float logit, int32_t id) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);  // -0 becomes +0
  const uint32_t ordered = (bits & kSign) != 0 ? ~bits : bits | kSign;
  return (uint64_t{ordered} << 32) | static_cast<uint32_t>(~id);
}

int32_t token_key_id(TokenKey key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

float token_key_logit(TokenKey key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>((ordered & kSign) != 0 ? ordered ^ kSign : ~ordered);
}

float largest_logit(std::span<const float> logits) {
  const size_t whole = logits.size() / kLanes * kLanes;
  float best = largest(logits.data(), whole);
  for (const float logit : logits.subspan(whole)) best = logit > best ? logit : best;
  return best;
}

BestToken find_best(std::span<const float> logits) {
  const float best = largest_logit(logits);
  if (best == -kInfinite) return {};

  for (size_t first = 0;; first += kBlock) {
    const size_t count = std::min(kBlock, logits.size() - first);
    int found = 0;
    for (size_t i = 0; i < count; ++i) found |= static_cast<int>(logits[first + i] == best);
    if (found == 0) continue;
    const auto at =
        std::find(logits.begin() + static_cast<std::ptrdiff_t>(first), logits.end(), best);
    return {static_cast<int32_t>(at - logits.begin()), best};
  }
}

BestToken find_best(const ForwardOutputs& outputs, int row) {
  const BestToken* known = outputs.best_of(row);
  return known != nullptr ? *known : find_best(outputs.logits_of(row));
}

void select_top(std::span<const float> logits, size_t k, std::vector<TokenKey>& keys) {
  const size_t room = std::min(2 * k + kBlock, logits.size());
  keys.clear();
  keys.reserve(room);
  float threshold = -kInfinite;
  const auto cut = [&] {
    const auto last = keys.begin() + static_cast<std::ptrdiff_t>(k - 1);
    std::nth_element(keys.begin(), last, keys.end(), std::greater<>());
    keys.resize(k);
    threshold = token_key_logit(keys.back());
  };
  // Ids ascend, so a later token as likely as the k-th is behind it and need not be looked at.
  for_each_above(logits, threshold, [&](size_t i) {
    keys.push_back(token_key(logits[i], static_cast<int32_t>(i)));
    if (keys.size() == room && room > k) cut();
  });
  if (keys.size() > k) cut();
}

bool filters_anything(const SamplingParams& params, size_t vocab) {
  return (params.top_k > 0 && static_cast<size_t>(params.top_k) < vocab) || params.top_p < 1.0 ||
         params.min_p > 0.0;
}

void filter_tokens(std::span<const float> logits, float best, const SamplingParams& params,
                   std::vector<TokenKey>& keys) {
  const bool top_k = params.top_k > 0 && static_cast<size_t>(params.top_k) < logits.size();
  const bool top_p = params.top_p < 1.0;
  if (top_k) {
    select_top(logits, static_cast<size_t>(params.top_k), keys);
    if (top_p) filter_top_p_of_keys(best, params, keys);
  } else if (top_p) {
    filter_top_p_of_all(logits, best, params, keys);
  } else {
    keys.clear();
    keys.reserve(logits.size());
    const float floor = params.min_p > 0 ? min_p_floor(best, params) : -kInfinite;
    for_each_above(logits, floor, [&](size_t i) {
      keys.push_back(token_key(logits[i], static_cast<int32_t>(i)));
    });
  }
  if (params.min_p > 0) {
    std::erase_if(keys, [&](TokenKey key) {
      return weight_of(key, best, params.temperature) < params.min_p;
    });
  }
}

}  // namespace aerie

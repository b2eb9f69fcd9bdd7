#include "sampling/draw.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>

#include "base/clones.h"
#include "sampling/weight.h"

namespace aerie {
namespace {

// The best score so far.
struct Leader {
  int32_t id = -1;
  double score = -std::numeric_limits<double>::infinity();

  void meet(int32_t challenger, double challenger_score) {
    if (challenger_score > score || (challenger_score == score && challenger < id)) {
      id = challenger;
      score = challenger_score;
    }
  }
};

// The best scores so far, the best first. `score` is the one to beat once there are as many as
// wanted.
struct Leaders {
  size_t most;
  std::vector<ScoredToken>& list;
  double score = -std::numeric_limits<double>::infinity();

  void meet(int32_t challenger, double challenger_score) {
    const auto before = [&](const ScoredToken& a) {
      return a.score > challenger_score || (a.score == challenger_score && a.id < challenger);
    };
    size_t place = list.size();
    while (place > 0 && !before(list[place - 1])) --place;
    if (place == most) return;
    for (const ScoredToken& known : list) {
      if (known.id == challenger) return;
    }
    if (list.size() == most) list.pop_back();
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(place), {challenger, challenger_score});
    if (list.size() == most) score = list.back().score;
  }
};

double score_of(float logit, int32_t id, const GumbelDraw& draw) {
  return scaled_logit(logit, draw.best, draw.temperature) +
         target_gumbel(draw.key, draw.position, id);
}

// Whether a token that is `behind` the leader's score before its own noise may still reach it,
// given the leading bits of its uniform u. It has to have -log(-log(u)) >= behind, that is 1 - u <=
// 1 - exp(-exp(-behind)) <= exp(-behind). The right side is bounded from above by its exponent's
// bits with a linear mantissa (2^f <= 1 + f on [0, 1]), the left side from below by dropping bits;
// kMargin covers every rounding on the way. Within kFarthest it stays within the exponents of
// float.
inline bool may_lead(float behind, uint32_t top) {
  constexpr float kMargin = 0.05f;
  constexpr float kLog2E = 1.442695f;
  constexpr float kFarthest = 60.0f;  // beyond kMaxGumbel
  const float nearest = behind > -kFarthest ? behind : -kFarthest;
  const float distance = nearest < kFarthest ? nearest : kFarthest;
  const float exponent = (127.0f - (distance - kMargin) * kLog2E) * 0x1p23f;
  const float bound = std::bit_cast<float>(static_cast<int32_t>(exponent));
  const float complement = static_cast<float>(static_cast<int32_t>(~top >> 1)) * 0x1p-31f;
  return complement <= bound;
}

// How far a token's score without noise is behind the leader's; not more than it really is, but for
// rounding. Differences beyond float are cut, or they would become NaN at high temperatures.
inline float behind_leader(float score, float logit, float best, float inverse) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const float difference = logit - best;
  return score - (difference > kLowest ? difference : kLowest) * inverse;
}

// Temperatures below have 1 / T beyond float; scaling with a larger one only rules out less.
float inverse_temperature(double temperature) {
  return static_cast<float>(1.0 / std::max(temperature, 1e-30));
}

// Logits below it cannot lead even with the largest noise.
float hopeless_below(double score, const GumbelDraw& draw) {
  const double floor = draw.best + draw.temperature * (score - kMaxGumbel - 0.1);
  if (!(floor > -std::numeric_limits<float>::max())) return -std::numeric_limits<float>::infinity();
  return std::nextafter(static_cast<float>(floor), -std::numeric_limits<float>::infinity());
}

AERIE_CLONES uint32_t largest_top(const uint32_t* tops, int count) {
  uint32_t best = 0;
  for (int i = 0; i < count; ++i) best = tops[i] > best ? tops[i] : best;
  return best;
}

// A loop without exits, for the compiler to vectorise.
AERIE_CLONES bool any_may_lead(const float* logits, const uint32_t* tops, int count, float score,
                               float best, float inverse) {
  int any = 0;
  for (int i = 0; i < count; ++i) {
    any |= static_cast<int>(may_lead(behind_leader(score, logits[i], best, inverse), tops[i]));
  }
  return any != 0;
}

// Lets every token challenge that may change who leads. Requires a leader's score.
template <typename Lead>
void challenge(std::span<const float> logits, const GumbelDraw& draw, Lead& leader) {
  const float inverse = inverse_temperature(draw.temperature);
  const int32_t vocab = static_cast<int32_t>(logits.size());
  double known_score = leader.score;
  float hopeless = hopeless_below(known_score, draw);
  for (int32_t first = 0; first < vocab; first += kNoiseBlock) {
    const float* block = logits.data() + first;
    const int count = std::min(kNoiseBlock, vocab - first);
    if (leader.score != known_score) {
      known_score = leader.score;
      hopeless = hopeless_below(known_score, draw);
    }
    const float largest = largest_logit({block, static_cast<size_t>(count)});
    if (!(largest >= hopeless)) continue;
    uint32_t tops[kNoiseBlock];
    target_noise_block(draw.key, draw.position, first, tops);
    const float score = static_cast<float>(leader.score);
    // Not even the largest logit with the largest noise: may_lead() rises with both.
    if (!may_lead(behind_leader(score, largest, draw.best, inverse), largest_top(tops, count))) {
      continue;
    }
    if (!any_may_lead(block, tops, count, score, draw.best, inverse)) continue;
    for (int i = 0; i < count; ++i) {
      if (!may_lead(behind_leader(score, block[i], draw.best, inverse), tops[i])) continue;
      leader.meet(first + i, score_of(block[i], first + i, draw));
    }
  }
}

template <typename Lead>
void challenge(std::span<const TokenKey> keys, const GumbelDraw& draw, Lead& leader) {
  for (const TokenKey key : keys) {
    const double scaled = scaled_logit(token_key_logit(key), draw.best, draw.temperature);
    if (scaled + kMaxGumbel < leader.score) continue;
    const int32_t id = token_key_id(key);
    const double u =
        noise_uniform(draw.key, NoiseStream::kTarget, draw.position, static_cast<uint32_t>(id));
    const uint32_t top = static_cast<uint32_t>(u * 0x1p32);
    if (!may_lead(static_cast<float>(leader.score - scaled), top)) continue;
    leader.meet(id, scaled + gumbel_of(u));
  }
}

// The likeliest tokens: with them to begin with, few others come close.
Leaders begin_with(std::span<const TokenKey> likeliest, int count, const GumbelDraw& draw,
                   std::vector<ScoredToken>& out) {
  out.clear();
  Leaders leaders{static_cast<size_t>(count), out};
  for (const TokenKey key : likeliest) {
    leaders.meet(token_key_id(key), score_of(token_key_logit(key), token_key_id(key), draw));
  }
  return leaders;
}

}  // namespace

int32_t gumbel_argmax(std::span<const float> logits, BestToken best, const GumbelDraw& draw) {
  assert(best.id >= 0 && best.logit == draw.best);
  // From the likeliest token on, a leader's score is near the final one's, so few others come
  // close.
  Leader leader;
  leader.meet(best.id, score_of(best.logit, best.id, draw));
  challenge(logits, draw, leader);
  return leader.id;
}

int32_t gumbel_argmax(std::span<const TokenKey> keys, const GumbelDraw& draw) {
  assert(!keys.empty());
  Leader leader;
  const TokenKey likeliest = *std::ranges::max_element(keys);
  const int32_t first = token_key_id(likeliest);
  leader.meet(first, score_of(token_key_logit(likeliest), first, draw));
  challenge(keys, draw, leader);
  return leader.id;
}

void gumbel_top(std::span<const float> logits, int count, const GumbelDraw& draw,
                std::vector<TokenKey>& scratch, std::vector<ScoredToken>& out) {
  assert(count >= 1);
  select_top(logits, static_cast<size_t>(count), scratch);
  Leaders leaders = begin_with(scratch, count, draw, out);
  // Fewer: those are all that can come.
  if (out.size() == leaders.most) challenge(logits, draw, leaders);
}

void gumbel_top(std::span<TokenKey> keys, int count, const GumbelDraw& draw,
                std::vector<ScoredToken>& out) {
  assert(count >= 1);
  const size_t first = std::min(keys.size(), static_cast<size_t>(count));
  std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(first), keys.end(),
                   std::greater<>());
  Leaders leaders = begin_with(keys.first(first), count, draw, out);
  if (out.size() == leaders.most) {
    challenge(std::span<const TokenKey>(keys.subspan(first)), draw, leaders);
  }
}

}  // namespace aerie

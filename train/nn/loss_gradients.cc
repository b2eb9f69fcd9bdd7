#include "train/nn/loss_gradients.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/clones.h"

namespace aerie::train {
namespace {

// Sums and maxima are of so many lanes, added up in one order: the same for every instruction set.
constexpr int64_t kLanes = 16;
using Lanes = std::array<float, kLanes>;

#define AERIE_INLINE __attribute__((always_inline)) inline

AERIE_INLINE float to_float(float value) {
  return value;
}
AERIE_INLINE float to_float(c10::BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.x) << 16);
}
AERIE_INLINE void put(float value, float& to) {
  to = value;
}
// To the nearest, of two the even one. No value here is a NaN that would have to stay one.
AERIE_INLINE void put(float value, c10::BFloat16& to) {
  const auto bits = std::bit_cast<uint32_t>(value);
  to.x = static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// e^x for x <= 0, to about 1e-7 of it; 0 is nearly it below -87.
AERIE_INLINE float exp_below_one(float x) {
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: adding it leaves whole numbers
  const float bounded = x < -87.0F ? -87.0F : x;
  const float shifted = bounded * 1.44269504F + kShift;
  const float whole = shifted - kShift;
  const float rest = (bounded - whole * 0.693145752F) - whole * 1.42860677e-6F;
  float power = 1.98756891e-4F;
  power = power * rest + 1.39819994e-3F;
  power = power * rest + 8.33345205e-3F;
  power = power * rest + 4.16657962e-2F;
  power = power * rest + 1.66666657e-1F;
  power = power * rest + 5.00000012e-1F;
  power = power * rest * rest + rest + 1.0F;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) << 23;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(power) + exponent);
}

template <typename Each>
AERIE_INLINE float sum_of(int64_t count, const Each& each) {
  Lanes sums = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums[static_cast<size_t>(lane)] += each(i + lane);
    }
  }
  float sum = 0.0F;
  for (const float lane : sums) sum += lane;
  for (int64_t i = whole; i < count; ++i) sum += each(i);
  return sum;
}

template <typename T>
AERIE_INLINE float largest_of(const T* values, int64_t count) {
  Lanes most;
  most.fill(-std::numeric_limits<float>::infinity());
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float value = to_float(values[i + lane]);
      float& best = most[static_cast<size_t>(lane)];
      best = value > best ? value : best;
    }
  }
  float largest = *std::max_element(most.begin(), most.end());
  for (int64_t i = whole; i < count; ++i) largest = std::max(largest, to_float(values[i]));
  return largest;
}

// softmax(logits) to `shares`; returns the logarithm of the sum of the logits' powers.
template <typename T>
AERIE_INLINE float softmax(const T* logits, int64_t count, float* shares) {
  const float largest = largest_of(logits, count);
  for (int64_t i = 0; i < count; ++i) shares[i] = exp_below_one(to_float(logits[i]) - largest);
  const float sum = sum_of(count, [&](int64_t i) { return shares[i]; });
  const float factor = 1.0F / sum;
  for (int64_t i = 0; i < count; ++i) shares[i] *= factor;
  return largest + std::log(sum);
}

// One row: the target's and the drafter's logits, and what they come to.
template <typename T>
struct Row {
  const T* target;
  T* draft;
  int64_t tokens;
  float *p, *q;  // softmax of both
  float log_p_sum, log_q_sum;

  AERIE_INLINE float log_p(int64_t i) const { return to_float(target[i]) - log_p_sum; }
  AERIE_INLINE float log_q(int64_t i) const { return to_float(draft[i]) - log_q_sum; }
};

// All of these leave the gradient of scale * loss with respect to the drafter's logits.

template <typename T>
AERIE_INLINE float forward_kl(const Row<T>& row, float scale) {
  const float loss = sum_of(row.tokens, [&](int64_t i) {
    return row.p[i] * (to_float(row.target[i]) - to_float(row.draft[i]));
  });
  for (int64_t i = 0; i < row.tokens; ++i) put(scale * (row.q[i] - row.p[i]), row.draft[i]);
  return loss + (row.log_q_sum - row.log_p_sum);
}

template <typename T>
AERIE_INLINE float reverse_kl(const Row<T>& row, float scale) {
  const float loss =
      sum_of(row.tokens, [&](int64_t i) { return row.q[i] * (row.log_q(i) - row.log_p(i)); });
  for (int64_t i = 0; i < row.tokens; ++i) {
    put(scale * row.q[i] * (row.log_q(i) - row.log_p(i) - loss), row.draft[i]);
  }
  return loss;
}

template <typename T>
float jensen_shannon(const Row<T>& row, float scale) {
  float loss = 0.0F, mean = 0.0F;
  for (int64_t i = 0; i < row.tokens; ++i) {
    const float log_middle = std::log(std::max(0.5F * (row.p[i] + row.q[i]), 1e-37F));
    const float ahead = row.q[i] * (row.log_q(i) - log_middle);
    loss += 0.5F * (row.p[i] * (row.log_p(i) - log_middle) + ahead);
    mean += 0.5F * ahead;
  }
  for (int64_t i = 0; i < row.tokens; ++i) {
    const float log_middle = std::log(std::max(0.5F * (row.p[i] + row.q[i]), 1e-37F));
    put(scale * row.q[i] * (0.5F * (row.log_q(i) - log_middle) - mean), row.draft[i]);
  }
  return loss;
}

template <typename T>
AERIE_INLINE float overlap(const Row<T>& row) {
  return sum_of(row.tokens, [&](int64_t i) { return row.p[i] < row.q[i] ? row.p[i] : row.q[i]; });
}

// kl_scale * KL - overlap_scale * overlap, of which only the gradient.
template <typename T>
AERIE_INLINE void mixed(const Row<T>& row, float kl_scale, float overlap_scale) {
  const float below =
      sum_of(row.tokens, [&](int64_t i) { return row.q[i] < row.p[i] ? row.q[i] : 0.0F; });
  for (int64_t i = 0; i < row.tokens; ++i) {
    const float more = (row.q[i] < row.p[i] ? 1.0F : 0.0F) - below;
    put(kl_scale * (row.q[i] - row.p[i]) - overlap_scale * row.q[i] * more, row.draft[i]);
  }
}

template <typename T>
AERIE_INLINE float to_gradients(Divergence kind, const Row<T>& row, float scale) {
  switch (kind) {
    case Divergence::kForwardKl:
      return forward_kl(row, scale);
    case Divergence::kReverseKl:
      return reverse_kl(row, scale);
    case Divergence::kJensenShannon:
      return jensen_shannon(row, scale);
    case Divergence::kTotalVariation: {
      const float same = overlap(row);
      mixed(row, 0.0F, scale);
      return 1.0F - same;
    }
    case Divergence::kNegativeLogAcceptance: {
      const float same = overlap(row);
      mixed(row, 0.0F, same > 1e-20F ? scale / same : 0.0F);
      return -std::log(std::max(same, 1e-20F));
    }
    case Divergence::kAcceptance: {
      const float same = overlap(row), share = std::exp(-3.0F * same);
      const float kl = forward_kl(row, 0.0F);
      mixed(row, scale * share, scale * (1.0F - share));
      return share * kl + (1.0F - share) * (1.0F - same);
    }
  }
  return 0.0F;
}

template <typename T>
AERIE_INLINE void rows_to_gradients(Divergence kind, const T* target, T* draft, int64_t tokens,
                                    int64_t rows, float scale, float* losses) {
  std::vector<float> shares(static_cast<size_t>(2 * tokens));
  for (int64_t r = 0; r < rows; ++r) {
    Row<T> row = {target + r * tokens,
                  draft + r * tokens,
                  tokens,
                  shares.data(),
                  shares.data() + tokens,
                  0.0F,
                  0.0F};
    row.log_p_sum = softmax(row.target, tokens, row.p);
    row.log_q_sum = softmax<T>(row.draft, tokens, row.q);
    losses[r] = to_gradients(kind, row, scale);
  }
}

AERIE_CLONES void float_rows(Divergence kind, const float* target, float* draft, int64_t tokens,
                             int64_t rows, float scale, float* losses) {
  rows_to_gradients(kind, target, draft, tokens, rows, scale, losses);
}

AERIE_CLONES void bfloat_rows(Divergence kind, const c10::BFloat16* target, c10::BFloat16* draft,
                              int64_t tokens, int64_t rows, float scale, float* losses) {
  rows_to_gradients(kind, target, draft, tokens, rows, scale, losses);
}

at::Tensor by_autograd(Divergence kind, const at::Tensor& target_logits,
                       const at::Tensor& draft_logits, double scale) {
  const at::AutoGradMode gradients(true);
  const at::Tensor leaf = draft_logits.detach().clone().set_requires_grad(true);
  const at::Tensor losses = divergence(kind, target_logits.to(at::kFloat), leaf.to(at::kFloat));
  (losses.sum() * scale).backward();
  draft_logits.detach().copy_(leaf.grad());
  return losses.detach();
}

// kl_scale [rows, 1] * (q - p) - overlap_scale [rows, 1] * q (1 where q < p, less the sum of q
// there), the gradient of mixed() above. Overwrites p.
at::Tensor mixed(at::Tensor p, const at::Tensor& q, const at::Tensor& kl_scale,
                 const at::Tensor& overlap_scale) {
  at::Tensor more = q.lt(p).to(q.scalar_type());
  more.sub_((more * q).sum(-1, true)).mul_(overlap_scale).mul_(q);
  return p.neg_().add_(q).mul_(kl_scale).sub_(more);
}

}  // namespace

// As the functions for rows above: of the two that most is trained with by themselves.
at::Tensor divergence_by_tensors(Divergence kind, const at::Tensor& target_logits,
                                 const at::Tensor& draft_logits, double scale) {
  if (kind == Divergence::kReverseKl || kind == Divergence::kJensenShannon) {
    return by_autograd(kind, target_logits, draft_logits, scale);
  }
  at::Tensor log_p = target_logits.log_softmax(-1, at::kFloat);
  at::Tensor log_q = draft_logits.log_softmax(-1, at::kFloat);
  at::Tensor p = log_p.exp();
  const auto kl = [&] { return log_p.sub_(log_q).mul_(p).sum(-1); };
  if (kind == Divergence::kForwardKl) {
    const at::Tensor losses = kl();
    draft_logits.copy_(log_q.exp_().sub_(p).mul_(scale));
    return losses;
  }
  const at::Tensor q = log_q.exp();
  const at::Tensor same = at::minimum(p, q).sum(-1, true);
  at::Tensor losses, kl_scale = at::zeros_like(same), overlap_scale = at::full_like(same, scale);
  if (kind == Divergence::kTotalVariation) {
    losses = 1.0 - same;
  } else if (kind == Divergence::kNegativeLogAcceptance) {
    const at::Tensor least = same.clamp_min(1e-20);
    losses = -least.log();
    overlap_scale = (scale / least).masked_fill_(same <= 1e-20, 0.0);
  } else {
    const at::Tensor share = (same * -3.0).exp();
    losses = share * kl().unsqueeze(-1) + (1.0 - share) * (1.0 - same);
    kl_scale = share * scale;
    overlap_scale = (1.0 - share) * scale;
  }
  draft_logits.copy_(mixed(p, q, kl_scale, overlap_scale));
  return losses.squeeze(-1);
}

at::Tensor divergence_to_gradients(Divergence kind, const at::Tensor& target_logits,
                                   const at::Tensor& draft_logits, double scale) {
  if (!draft_logits.is_cpu()) {
    return divergence_by_tensors(kind, target_logits, draft_logits, scale);
  }
  const int64_t rows = draft_logits.size(0), tokens = draft_logits.size(1);
  at::Tensor losses = at::empty({rows}, at::kFloat);
  const auto run = [&]<typename T>(auto* of_rows, T* draft) {
    const T* const target = target_logits.data_ptr<T>();
    at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
      of_rows(kind, target + begin * tokens, draft + begin * tokens, tokens, end - begin,
              static_cast<float>(scale), losses.data_ptr<float>() + begin);
    });
  };
  if (draft_logits.scalar_type() == at::kFloat) {
    run(float_rows, draft_logits.data_ptr<float>());
  } else {
    run(bfloat_rows, draft_logits.data_ptr<c10::BFloat16>());
  }
  return losses;
}

namespace {

template <typename T>
AERIE_INLINE int64_t first_largest(const T* values, int64_t count) {
  const float largest = largest_of(values, count);
  for (int64_t i = 0; i < count; ++i) {
    if (to_float(values[i]) == largest) return i;
  }
  return 0;
}

AERIE_CLONES int64_t first_largest_float(const float* values, int64_t count) {
  return first_largest(values, count);
}
AERIE_CLONES int64_t first_largest_bfloat(const c10::BFloat16* values, int64_t count) {
  return first_largest(values, count);
}

}  // namespace

at::Tensor likeliest(const at::Tensor& logits) {
  if (!logits.is_cpu()) return logits.argmax(-1);
  const int64_t rows = logits.size(0), tokens = logits.size(1);
  at::Tensor places = at::empty({rows}, at::kLong);
  int64_t* const place = places.data_ptr<int64_t>();
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      place[r] = logits.scalar_type() == at::kFloat
                     ? first_largest_float(logits.data_ptr<float>() + r * tokens, tokens)
                     : first_largest_bfloat(logits.data_ptr<c10::BFloat16>() + r * tokens, tokens);
    }
  });
  return places;
}

}  // namespace aerie::train

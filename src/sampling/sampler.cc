#include "sampling/sampler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/errors.h"
#include "sampling/weight.h"

namespace aerie {
namespace {

template <typename T>
Status out_of_range(const char* name, T value, const char* range) {
  return invalid_argument("{} is {}, must be {}", name, value, range);
}

Status validate_bias(const SamplingParams& params, int vocab) {
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab) {
      return invalid_argument("logit_bias names token {}, must be in 0..{}", id, vocab - 1);
    }
    // +infinity would leave a logit of -infinity undefined.
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      return invalid_argument("logit_bias of token {} is {}, must be finite or -infinity", id,
                              bias);
    }
  }
  return Status();
}

// Fills in the probabilities of out.ids. A weight that vanishes in double drops out: what is listed
// has a positive probability.
void weigh(std::span<const float> logits, float best, double temperature, Distribution& out) {
  double sum = 0;
  for (const int32_t id : out.ids) {
    const float logit = logits[static_cast<size_t>(id)];
    out.probs.push_back(exp_nonpositive(scaled_logit(logit, best, temperature)));
    sum += out.probs.back();
  }
  size_t kept = 0;
  for (size_t i = 0; i < out.ids.size(); ++i) {
    const double probability = out.probs[i] / sum;
    if (!(probability > 0)) continue;
    out.ids[kept] = out.ids[i];
    out.probs[kept++] = probability;
  }
  out.ids.resize(kept);
  out.probs.resize(kept);
}

}  // namespace

Status validate(const SamplingParams& params, int vocab) {
  const auto within = [](double x, double low, double high) { return x >= low && x <= high; };
  if (vocab <= 0) return out_of_range("the vocabulary size", vocab, "positive");
  if (!std::isfinite(params.temperature) || params.temperature < 0) {
    return out_of_range("temperature", params.temperature, "a finite number >= 0");
  }
  if (params.top_k < 0) return out_of_range("top_k", params.top_k, ">= 0 (0: all)");
  if (!within(params.top_p, 0, 1)) return out_of_range("top_p", params.top_p, "in [0, 1]");
  if (!within(params.min_p, 0, 1)) return out_of_range("min_p", params.min_p, "in [0, 1]");
  if (!std::isfinite(params.repetition_penalty) || params.repetition_penalty <= 0) {
    return out_of_range("repetition_penalty", params.repetition_penalty, "a finite number > 0");
  }
  if (!std::isfinite(params.frequency_penalty)) {
    return out_of_range("frequency_penalty", params.frequency_penalty, "finite");
  }
  if (!std::isfinite(params.presence_penalty)) {
    return out_of_range("presence_penalty", params.presence_penalty, "finite");
  }
  if (params.penalty_window < -1) {
    return out_of_range("penalty_window", params.penalty_window, ">= -1 (-1: all tokens)");
  }
  for (const auto& [name, count] : {std::pair("logprobs", params.logprobs),
                                    std::pair("prompt_logprobs", params.prompt_logprobs)}) {
    if (count >= -1 && count <= vocab) continue;
    return out_of_range(name, count, "between -1 (none) and the vocabulary size");
  }
  return validate_bias(params, vocab);
}

Sampler::Sampler(const SamplingParams& params, int vocab)
    : params_(params),
      vocab_(vocab),
      filters_(filters_anything(params, static_cast<size_t>(vocab))),
      adjuster_(vocab) {
  assert(validate(params, vocab).ok());
  // How many tokens a nucleus has differs from call to call; room for all costs address space only.
  if (filters_ || params.logprobs > 0 || params.prompt_logprobs > 0)
    keys_.reserve(static_cast<size_t>(vocab));
}

Sampler::Prepared Sampler::prepare(std::span<const float> logits, const SamplingContext& context) {
  assert(logits.size() == static_cast<size_t>(vocab_));
  const std::span<const float> adjusted = adjuster_.adjust(logits, params_, context);
  return {adjusted, find_best(adjusted)};
}

// Null: logits are needed.
const BestToken* Sampler::decisive(const ForwardOutputs& outputs, int row,
                                   const SamplingContext& context) const {
  const bool untouched = params_.temperature == 0.0 && !LogitAdjuster::touches(params_, context);
  return untouched ? outputs.best_of(row) : nullptr;
}

int32_t Sampler::token_of(const BestToken& best, const SamplingContext& context) {
  return best.id < 0 ? adjuster_.fallback(params_, context.constraint) : best.id;
}

int32_t Sampler::sample(const ForwardOutputs& outputs, int row, const SamplingContext& context) {
  const BestToken* const best = decisive(outputs, row, context);
  return best != nullptr ? token_of(*best, context) : sample(outputs.logits_of(row), context);
}

int32_t Sampler::sample(std::span<const float> logits, const SamplingContext& context) {
  const Prepared prepared = prepare(logits, context);
  if (prepared.best.id < 0 || params_.temperature == 0.0) return token_of(prepared.best, context);
  const GumbelDraw draw{noise(), context.position(), prepared.best.logit, params_.temperature};
  if (!filters_) return gumbel_argmax(prepared.logits, prepared.best, draw);
  filter_tokens(prepared.logits, prepared.best.logit, params_, keys_);
  return gumbel_argmax(keys_, draw);
}

void Sampler::ranking(std::span<const float> logits, const SamplingContext& context, int count,
                      std::vector<ScoredToken>& out, double sharpness) {
  out.clear();
  const Prepared prepared = prepare(logits, context);
  const float best = prepared.best.logit;
  if (prepared.best.id < 0) {
    out.push_back({adjuster_.fallback(params_, context.constraint), 0.0});
    return;
  }
  keys_.reserve(static_cast<size_t>(vocab_));
  if (params_.temperature > 0.0) {
    const double temperature =
        std::max(params_.temperature / sharpness, std::numeric_limits<double>::min());
    const GumbelDraw draw{noise(), context.position(), best, temperature};
    if (!filters_) return gumbel_top(prepared.logits, count, draw, keys_, out);
    filter_tokens(prepared.logits, best, params_, keys_);
    return gumbel_top(keys_, count, draw, out);
  }
  select_top(prepared.logits, static_cast<size_t>(count), keys_);
  std::ranges::sort(keys_, std::greater<>());
  const double log_total = noise_log(sum_weights(prepared.logits, best, 1.0));
  for (const TokenKey key : keys_) {
    out.push_back({token_key_id(key), scaled_logit(token_key_logit(key), best, 1.0) - log_total});
  }
}

void Sampler::distribution(const ForwardOutputs& outputs, int row, const SamplingContext& context,
                           Distribution& out) {
  const BestToken* const best = decisive(outputs, row, context);
  if (best == nullptr) return distribution(outputs.logits_of(row), context, out);
  out.clear();
  out.ids.push_back(token_of(*best, context));
  out.probs.push_back(1.0);
}

void Sampler::distribution(std::span<const float> logits, const SamplingContext& context,
                           Distribution& out) {
  out.clear();
  const Prepared prepared = prepare(logits, context);
  if (prepared.best.id < 0 || params_.temperature == 0.0) {
    out.ids.push_back(token_of(prepared.best, context));
    out.probs.push_back(1.0);
    return;
  }
  out.ids.reserve(static_cast<size_t>(vocab_));
  out.probs.reserve(static_cast<size_t>(vocab_));
  if (filters_) {
    filter_tokens(prepared.logits, prepared.best.logit, params_, keys_);
    for (const TokenKey key : keys_) out.ids.push_back(token_key_id(key));
    std::ranges::sort(out.ids);
  } else {
    out.ids.resize(static_cast<size_t>(vocab_));
    std::iota(out.ids.begin(), out.ids.end(), 0);
  }
  weigh(prepared.logits, prepared.best.logit, params_.temperature, out);
}

void Sampler::logprobs(std::span<const float> logits, int32_t token, int count,
                       std::vector<TokenLogprob>& out) {
  assert(logits.size() == static_cast<size_t>(vocab_) && token >= 0 && token < vocab_);
  out.clear();
  if (count < 0) return;
  const std::span<const float> bounded = adjuster_.bounded(logits);
  const BestToken best = find_best(bounded);
  constexpr float kUnbounded = std::numeric_limits<float>::infinity();
  const double log_total = best.id < 0 ? 0.0 : noise_log(sum_weights(bounded, best.logit, 1.0));
  const auto logprob_of = [&](float logit) {
    if (!(logit > -kUnbounded)) return -kUnbounded;
    return static_cast<float>(scaled_logit(logit, best.logit, 1.0) - log_total);
  };
  out.push_back({token, logprob_of(bounded[static_cast<size_t>(token)])});
  if (count == 0) return;
  select_top(bounded, static_cast<size_t>(count), keys_);
  std::ranges::sort(keys_, std::greater<>());
  for (const TokenKey key : keys_) {
    out.push_back({token_key_id(key), logprob_of(token_key_logit(key))});
  }
}

}  // namespace aerie

#include "tests/sampling/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "sampling/noise.h"

namespace aerie {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

float rounded(double x) {
  return static_cast<float>(std::min<double>(x, kLargest));
}

std::vector<float> adjusted(std::vector<float> logits, const SamplingParams& params,
                            const std::vector<int32_t>& history, const std::vector<bool>& allowed) {
  for (float& x : logits) {
    if (std::isnan(x)) x = -kInfinity;
    if (x == kInfinity) x = kLargest;
  }
  for (const auto& [id, bias] : params.logit_bias) {
    float& x = logits[static_cast<size_t>(id)];
    x = rounded(static_cast<double>(x) + bias);
  }
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!allowed.empty() && !allowed[i]) logits[i] = -kInfinity;
  }
  std::map<int32_t, int> counts;
  const size_t window = params.penalty_window < 0
                            ? history.size()
                            : std::min(history.size(), static_cast<size_t>(params.penalty_window));
  for (size_t i = history.size() - window; i < history.size(); ++i) ++counts[history[i]];
  for (const auto& [id, count] : counts) {
    if (id < 0 || id >= static_cast<int32_t>(logits.size())) continue;
    double x = logits[static_cast<size_t>(id)];
    x = x > 0 ? x / params.repetition_penalty : x * params.repetition_penalty;
    x -= count * params.frequency_penalty + params.presence_penalty;
    logits[static_cast<size_t>(id)] = rounded(x);
  }
  return logits;
}

}  // namespace

std::vector<ReferenceToken> reference_tokens(const std::vector<float>& logits,
                                             const SamplingParams& params,
                                             const std::vector<int32_t>& history,
                                             const std::vector<bool>& allowed) {
  const std::vector<float> x = adjusted(logits, params, history, allowed);
  std::vector<ReferenceToken> tokens;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] > -kInfinity) tokens.push_back({static_cast<int32_t>(i), x[i], 0});
  }
  if (tokens.empty()) return tokens;
  std::sort(tokens.begin(), tokens.end(), [](const ReferenceToken& a, const ReferenceToken& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  if (params.temperature == 0) {
    tokens.resize(1);
    tokens[0].weight = 1;
    return tokens;
  }
  for (ReferenceToken& token : tokens) {
    token.weight = std::exp((token.logit - tokens[0].logit) / params.temperature);
  }
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < tokens.size()) {
    tokens.resize(static_cast<size_t>(params.top_k));
  }
  if (params.top_p < 1) {
    double total = 0;
    for (const ReferenceToken& token : tokens) total += token.weight;
    double sum = 0;
    size_t kept = 0;
    while (kept < tokens.size()) {
      sum += tokens[kept++].weight;
      if (sum >= params.top_p * total) break;
    }
    tokens.resize(kept);
  }
  std::erase_if(tokens, [&](const ReferenceToken& t) { return t.weight < params.min_p; });
  std::sort(tokens.begin(), tokens.end(),
            [](const ReferenceToken& a, const ReferenceToken& b) { return a.id < b.id; });
  return tokens;
}

int32_t reference_draw(const std::vector<ReferenceToken>& tokens, const SamplingParams& params,
                       uint64_t position) {
  if (params.temperature == 0) return tokens[0].id;
  double best = -std::numeric_limits<double>::infinity();
  for (const ReferenceToken& token : tokens) best = std::max(best, token.logit);
  int32_t id = -1;
  double score = -std::numeric_limits<double>::infinity();
  for (const ReferenceToken& token : tokens) {
    const double s = (token.logit - best) / params.temperature +
                     target_gumbel({params.seed, params.choice}, position, token.id);
    if (s > score) {
      score = s;
      id = token.id;
    }
  }
  return id;
}

std::vector<float> random_logits(std::mt19937_64& random, int vocab) {
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  const int kind = static_cast<int>(random() % 6);
  const float scale = std::pow(10.0f, 2.5f * uniform(random) - 1.0f);
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (float& x : logits) {
    x = scale * normal(random);
    if (kind == 0) x = std::round(x);        // ties
    if (kind == 1) x = 0.001f * x;           // nearly flat
    if (kind == 2) x = scale;                // flat
    if (kind == 3) x = x * std::abs(x) * 3;  // peaked
  }
  if (kind == 4 || kind == 0) {
    const float special[] = {-kInfinity, std::numeric_limits<float>::quiet_NaN(), 0.0f, -0.0f};
    for (float& x : logits) x = uniform(random) < 0.3f ? special[random() % 4] : x;
  }
  if (kind == 5 && random() % 4 == 0) {
    const float special[] = {kInfinity, kLargest, -kLargest};
    for (float& x : logits) x = uniform(random) < 0.2f ? special[random() % 3] : x;
  }
  return logits;
}

SamplingParams random_params(std::mt19937_64& random, int vocab) {
  std::uniform_real_distribution<double> uniform;
  const auto sometimes = [&](double chance) { return uniform(random) < chance; };
  SamplingParams params;
  params.seed = random();
  params.choice = static_cast<uint32_t>(random() % 4);
  const double temperatures[] = {1.0, 0.8, 0.3, 1.7, 1e-3, 1e-200, 50.0, 1e30};
  if (!sometimes(0.15)) params.temperature = temperatures[random() % 8];
  if (sometimes(0.4))
    params.top_k = 1 + static_cast<int>(random() % static_cast<size_t>(vocab + 2));
  if (sometimes(0.5)) params.top_p = sometimes(0.2) ? 0.0 : uniform(random);
  if (sometimes(0.3)) params.min_p = sometimes(0.1) ? 1.0 : 0.3 * uniform(random);
  if (sometimes(0.3)) params.repetition_penalty = 0.7 + uniform(random);
  if (sometimes(0.3)) params.frequency_penalty = 2 * uniform(random) - 0.7;
  if (sometimes(0.3)) params.presence_penalty = 4 * uniform(random) - 2;
  const int windows[] = {64, -1, 0, 1, 5};
  params.penalty_window = windows[random() % 5];
  for (size_t n = sometimes(0.3) ? random() % 4 : 0; n > 0; --n) {
    const float bias = sometimes(0.2) ? -kInfinity : static_cast<float>(20 * uniform(random) - 10);
    params.logit_bias.emplace_back(static_cast<int32_t>(random() % static_cast<size_t>(vocab)),
                                   bias);
  }
  return params;
}

std::vector<int32_t> random_tokens(std::mt19937_64& random, int vocab, int count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % static_cast<size_t>(vocab));
  }
  return tokens;
}

}  // namespace aerie

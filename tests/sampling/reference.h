// The sampling pipeline once more, as plainly as it can be written: whole vocabulary, full sorts,
// the standard library's functions.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "core/constraint.h"
#include "core/sampling_params.h"

namespace aerie {

// Allows a fixed set; its state is how far it advanced.
class SetConstraint final : public TokenConstraint {
 public:
  explicit SetConstraint(std::vector<bool> allowed) : allowed_(std::move(allowed)) {}

  std::unique_ptr<TokenConstraint> fork() const override {
    return std::make_unique<SetConstraint>(*this);
  }
  void advance(int32_t) override {}
  void mask(std::span<bool> allowed) const override {
    for (size_t i = 0; i < allowed.size(); ++i) allowed[i] = allowed_[i];
  }
  bool allows(int32_t token) const override { return allowed_[static_cast<size_t>(token)]; }
  std::string forced() const override { return {}; }

 private:
  std::vector<bool> allowed_;
};

struct ReferenceToken {
  int32_t id;
  double logit;   // after bias, mask, penalties
  double weight;  // exp((logit - best) / temperature)
};

// The tokens among which a draw chooses at `params.temperature` > 0, by ascending id; at 0 the one
// likeliest. Empty if every token is at -infinity. `allowed` empty: no constraint.
std::vector<ReferenceToken> reference_tokens(const std::vector<float>& logits,
                                             const SamplingParams& params,
                                             const std::vector<int32_t>& history,
                                             const std::vector<bool>& allowed);

// Gumbel-max over all of them, every score computed.
int32_t reference_draw(const std::vector<ReferenceToken>& tokens, const SamplingParams& params,
                       uint64_t position);

// Random logits of many kinds: normal, peaked, flat, with many ties, with infinities and NaN.
std::vector<float> random_logits(std::mt19937_64& random, int vocab);
// Random settings of any mix, valid for `vocab`.
SamplingParams random_params(std::mt19937_64& random, int vocab);
std::vector<int32_t> random_tokens(std::mt19937_64& random, int vocab, int count);

}  // namespace aerie

// Top-k, top-p and min-p: which tokens a draw chooses among.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/best_token.h"
#include "core/forward_batch.h"
#include "core/sampling_params.h"

namespace aerie {

// A token with its logit as one integer: larger means likelier, and among equals the smaller id. So
// every cut and every order breaks ties in the same way.
using TokenKey = uint64_t;
TokenKey token_key(float logit, int32_t id);  // requires logit not NaN
int32_t token_key_id(TokenKey key);
float token_key_logit(TokenKey key);

// Their largest, NaN left out; -infinity if there is none.
float largest_logit(std::span<const float> logits);

BestToken find_best(std::span<const float> logits);
// The same of a row of a pass, whose logits are asked for only if the model has not looked for it.
BestToken find_best(const ForwardOutputs& outputs, int row);

// Leaves in `keys` the keys of the k likeliest tokens (fewer if fewer are above -infinity), in no
// order. Its memory stays within logits.size() keys. Requires k >= 1.
void select_top(std::span<const float> logits, size_t k, std::vector<TokenKey>& keys);

// Whether the settings leave anything out.
bool filters_anything(const SamplingParams& params, size_t vocab);

// Leaves in `keys` the tokens that stay, in no particular order, at least one.
//  - top-k: the top_k likeliest;
//  - top-p (Holtzman et al. 2019, 1904.09751): of those, the shortest run of likeliest tokens whose
//    weights (weight.h) add up, likeliest first, to at least top_p times the sum over all of them;
//    that sum is taken likeliest first behind top-k, and by sum_weights() otherwise;
//  - min-p (Nguyen et al. 2024, 2407.01082): of those, the ones with weight >= min_p.
// Requires find_best(logits).logit == best, a finite number, and temperature > 0.
void filter_tokens(std::span<const float> logits, float best, const SamplingParams& params,
                   std::vector<TokenKey>& keys);

}  // namespace aerie

// How tokens are drawn from logits: llama.cpp's and OpenAI's parameters under their names.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace aerie {

// Applied in this order: bias, constraint mask, penalties, temperature, top-k, top-p, min-p.
struct SamplingParams {
  uint64_t seed = 0;
  uint32_t choice = 0;  // the index among `n` choices of one request; 0 is the lone run

  double temperature = 0.0;  // 0: the likeliest token; ties go to the smaller id
  int top_k = 0;             // keep the k likeliest; 0: all
  double top_p = 1.0;        // keep the shortest run of likeliest tokens with at least this mass
  double min_p = 0.0;        // keep tokens at least this fraction as likely as the likeliest

  double repetition_penalty = 1.0;  // CTRL (1909.05858, section 4.1): logit / p if > 0, else * p
  double frequency_penalty = 0.0;   // subtracted once for every occurrence
  double presence_penalty = 0.0;    // subtracted once if it occurs at all
  int penalty_window = 64;          // the newest so many tokens count, prompt included; -1: all

  std::vector<std::pair<int32_t, float>> logit_bias = {};  // added to the logit of a token id
  int logprobs = -1;  // -1: none; n >= 0: log-probabilities of the token and of the n likeliest
  int prompt_logprobs = -1;  // the same of the prompt's tokens, given those before them
};

struct TokenLogprob {
  int32_t token;
  float logprob;
};

}  // namespace aerie

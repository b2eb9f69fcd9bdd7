// What a model is, in numbers: read from a file's metadata, checked there, constant afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace aerie {

// How rotary embedding stretches positions beyond the trained context.
enum class RopeScaling : uint8_t {
  kNone,
  kLinear,   // positions divided by `factor` (Chen et al. 2023, 2306.15595)
  kYarn,     // Peng et al. 2023, 2309.00071
  kFactors,  // one divisor for each pair of dimensions, from the tensor rope_freqs.weight (Llama 3)
};

struct RopeConfig {
  int dimensions = 0;  // the first so many dimensions of a head turn; the rest pass
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  int original_context = 0;  // YaRN: the context before stretching
  double yarn_beta_fast = 32.0;
  double yarn_beta_slow = 1.0;
  double yarn_extrapolation = 1.0;
  double attention_factor = 1.0;  // multiplies cosines and sines
  std::vector<float> factors;     // kFactors: dimensions / 2 divisors
};

struct ModelConfig {
  std::string family;  // "llama"
  std::string name;    // for people; may be empty
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;  // divides heads
  int head_dim = 0;
  int ffn = 0;
  int vocab = 0;    // rows of the LM head: the width of logits
  int context = 0;  // positions that the model was trained for
  double norm_eps = 1e-5;
  RopeConfig rope;

  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
};

}  // namespace aerie

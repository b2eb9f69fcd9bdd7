// The kinds of operations that come in several forms. Free of other headers: the files of one
// instruction set include it.
#pragma once

#include <cstdint>

namespace aerie::kernels {

// Which elements of a head turn together.
enum class RopeStyle : uint8_t {
  kPairs,   // (2i, 2i + 1): the paper's; Llama in GGUF
  kHalves,  // (i, i + dimensions / 2): GPT-NeoX; all of Hugging Face
};

// With u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks & Gimpel 2016, 1606.08415, for both forms of
// GELU). What is infinitely far below 0 gives NaN, as 0 times infinity does.
enum class Activation : uint8_t {
  kSilu,      // x / (1 + e^-x)
  kGeluTanh,  // x / 2 (1 + tanh u): "gelu_pytorch_tanh", "gelu_new"
  kGelu,      // x / 2 (1 + erf(x / sqrt 2)): "gelu"
  // gpt-oss's: y / (1 + e^-1.702y) with y = min(x, 7). What it multiplies, z, becomes
  // 1 + min(max(z, -7), 7) before.
  kClampedSilu,
};

}  // namespace aerie::kernels

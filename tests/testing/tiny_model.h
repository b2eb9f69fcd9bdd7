// Llama models of a few thousand random weights: real files for the real loader, so small that a
// test can run them thousands of times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "format/gguf/gguf.h"
#include "model/model.h"
#include "tests/format/gguf/gguf_writer.h"

namespace aerie::test {

struct TinySpec {
  int layers = 2;
  int hidden = 64;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 16;
  int ffn = 96;
  int vocab = 96;
  int context = 1024;
  DType dtype = DType::kF32;  // of the matrices
  uint64_t seed = 1;
  bool tied = false;
  // Standard deviations: of what a matrix makes of a normed input, and of the logits. With logits
  // around 3, sampling at temperature 1 is neither flat nor certain, and greedy output soon loops.
  double weight_scale = 1.0;
  double head_scale = 3.0;
  // Adds the metadata of a byte-level tokenizer without merges and a ChatML template. Then vocab
  // must be at least kByteVocab.
  bool tokenizer = false;
  std::string turn_end = "<|im_end|>";  // what that tokenizer calls kTurnEnd
  std::vector<std::string> omit;        // keys and tensors to leave out
  std::vector<int> silent_layers;       // add nothing to the residual stream
  int window = 0;                       // of attention in every second layer, from the first
};

// The tokenizer's ids: 0 .. 255 are bytes.
inline constexpr int32_t kEndOfText = 256;
inline constexpr int32_t kTurnStart = 257;  // <|im_start|>
inline constexpr int32_t kTurnEnd = 258;    // <|im_end|>, the EOS
inline constexpr int kByteVocab = 259;

// Deterministic: the same file for the same spec on every machine.
GgufWriter tiny_gguf(const TinySpec& spec);

// A file in memory that a model can be loaded from as often as one likes. Must outlive the models.
class TinyFile {
 public:
  explicit TinyFile(const TinySpec& spec) : TinyFile(tiny_gguf(spec)) {}
  explicit TinyFile(const GgufWriter& writer);

  const GgufFile& gguf() const { return *file_; }
  // Fails the test if it cannot be loaded.
  std::unique_ptr<Model> load(const ModelOptions& options) const;

 private:
  std::vector<std::byte> bytes_;
  std::unique_ptr<GgufFile> file_;
};

// Lives as long as the program.
ThreadPool& pool_of(int threads);

// With the best backend and pool_of(threads).
ModelOptions model_options(int threads = 1, kernels::Isa isa = kernels::best_isa());

// Deterministic, the same on every platform.
std::vector<int32_t> random_tokens(uint64_t seed, int count, int vocab);

}  // namespace aerie::test

// What DSpark (Cheng et al. 2026, 2607.05147) puts on top of a block that was drafted at once: what
// the tokens before one say of it (section 3.1, a Markov head or an RNN), and how likely the target
// is to accept it (3.2.1, a confidence head).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "draft/heads/head_parts.h"
#include "kernels/backend.h"
#include "model/weights.h"

namespace aerie {

inline constexpr const char* kMarkovName = "markov_head.markov_w1.weight";
inline constexpr const char* kConfidenceName = "confidence_head.proj.weight";

class MarkovHead {
 public:
  // Of a file with neither of both: null. `vocab`: logits of a row, `width`: of a block's rows
  // behind the last norm. kInvalidArgument or kInvalidData, naming the tensor or the key, for what
  // does not fit; kUnsupported for a kind that is not known.
  static Expected<std::unique_ptr<MarkovHead>> load(WeightLoader& loader, HeadFile& file,
                                                    const HeadTarget& target,
                                                    const HeadOptions& options, int vocab,
                                                    int64_t width);

  // `before`: the root's token and those of a draft behind it; `hidden` [before.size()][width]: the
  // block's rows that draft, up to the one whose `logits` [vocab] these are. Adds what the tokens
  // say; returns how likely a token of the result is to be accepted, < 0: it has no opinion.
  float follow(std::span<const int32_t> before, std::span<const float> hidden,
               std::span<float> logits);

 private:
  enum class Kind : uint8_t { kVanilla, kGated, kRnn };

  explicit MarkovHead(const HeadTarget& target, int64_t width)
      : backend_(*target.backend), pool_(*target.pool), width_(width) {}
  Status load_markov(WeightLoader& loader, HeadFile& file, const HeadTarget& target,
                     const HeadOptions& options, int vocab);
  Status load_confidence(WeightLoader& loader, const HeadFile& file);
  void multiply(const Linear& w, std::span<const float> x, float* y, bool adds);
  void embed(int32_t token);
  void step_rnn(std::span<const float> hidden);
  float confidence(std::span<const float> hidden) const;

  const kernels::Backend& backend_;
  ThreadPool& pool_;
  int64_t width_, rank_ = 0;  // rank_ 0: no Markov head
  Kind kind_ = Kind::kVanilla;
  TensorData embedding_;           // [tokens of the target, rank]
  Linear output_;                  // [vocab, rank]
  Linear inner_;                   // the gate, or all that an RNN's step multiplies with
  std::vector<float> confidence_;  // [width, or width and rank]; empty: none
  float confidence_bias_ = 0.0f;
  // Scratch.
  kernels::Activations input_;
  std::vector<float> embedded_, state_, inputs_, inners_;
};

}  // namespace aerie

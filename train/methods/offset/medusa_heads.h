// Medusa's heads (Cai et al. 2024, 2401.10774) as they are trained, and their checkpoint. What the
// engine does with them: draft/heads/medusa.h.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/json.h"
#include "train/methods/offset/offset_heads.h"
#include "train/methods/setting_list.h"
#include "train/methods/target.h"
#include "train/nn/losses.h"
#include "train/nn/parameters.h"

namespace aerie::train {

// The matrix from a head's state to logits.
enum class MedusaOutput : uint8_t {
  kOwn,     // of each head: Medusa's own
  kShared,  // one for all heads, trained with them
  kTarget,  // the target's, not trained and not stored
};
// "own", "shared", "target".
Expected<MedusaOutput> parse_medusa_output(std::string_view name);

struct MedusaOptions {
  int heads = 4;   // the paper's; each drafts one token more
  int blocks = 1;  // x + silu(w x + b) of each head, the paper's
  MedusaOutput output = MedusaOutput::kOwn;
  // The target's ids that can be drafted, ascending; empty: all, the paper's.
  std::vector<int32_t> vocabulary;
  double decay = 0.8;  // the loss of head k, from 1, counts decay^k: the paper's
  // Heads learn the target's distribution at their place, by this distance from it; without it, as
  // in the paper, the token that came there.
  std::optional<Divergence> soft;
  bool bf16 = false;  // matrices are stored so, not as F32

  void add_to(SettingList& settings);
};

// The weights of blocks begin at 0 and output matrices as the target's, so that every head begins
// by saying what the target says of the root: as the paper has it. Nothing is random.
class MedusaHeads {
 public:
  // kInvalidArgument for options out of range: heads or blocks that are none or more than 64, the
  // target's matrix with a pruned vocabulary (the file could not say so; the engine prunes it when
  // asked: draft_vocab), and what OffsetHeads::create() refuses. The target must outlive the heads.
  static Expected<MedusaHeads> create(Target& target, const MedusaOptions& options);

  const MedusaOptions& options() const { return options_; }
  const OffsetHeads& offsets() const { return offsets_; }
  Parameters& parameters() { return parameters_; }

  // OffsetHeads::accumulate() for heads that see these states, [rows, hidden], which may be a leaf
  // that wants a gradient.
  Expected<Figures> accumulate(const Batch& batch, const at::Tensor& states, double scale,
                               bool train) const;

  // Medusa's own layout for heads with whole matrices of their own, else vLLM's, with "token_map"
  // for a pruned vocabulary.
  Status write(const std::string& folder) const;

 private:
  struct Block {
    at::Tensor weight, bias;
  };

  MedusaHeads(const MedusaOptions& options, OffsetHeads offsets, int vocab);
  // vLLM's names and configuration: those of Medusa's own know neither one matrix for all heads nor
  // fewer tokens.
  bool is_vllm() const {
    return options_.output == MedusaOutput::kShared || !options_.vocabulary.empty();
  }
  std::string block_name(int head, int block) const;
  std::string output_name(int head) const;
  OffsetHeads::Output forward(int head, const at::Tensor& states) const;
  Json config() const;

  MedusaOptions options_;
  OffsetHeads offsets_;
  int vocab_;  // the target's
  Parameters parameters_;
  std::vector<std::vector<Block>> blocks_;  // [head][block]
  std::vector<at::Tensor> outputs_;         // of each head, or one for all
};

}  // namespace aerie::train

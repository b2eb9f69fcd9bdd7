// A separate, smaller model as drafter (Leviathan et al. 2211.17192; Chen et al. 2302.01318).
#pragma once

#include <memory>
#include <string_view>

#include "draft/drafter.h"
#include "kernels/backend.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

struct DraftModelOptions {
  std::string_view method = "draft_model";  // what the drafter calls itself
  int num_tokens = 5;                       // >= 1
  int vocab = 0;          // ids below are the target's; wider logits are padding and never drawn
  int max_positions = 0;  // the longest sequence; beyond it there are no drafts
  int max_sequences = 1;  // open at one time
  int max_rows = 512;     // of a pass, as the model was loaded for; >= max_sequences
  kernels::KvType cache_type = kernels::KvType::kF16;
};

// A chain of num_tokens tokens that the draft model draws itself: with the target's own noise where
// that is allowed, else from its own stream, reporting each distribution. Its cache is kept in step
// with the committed tokens; what it has not seen yet is fed together with the root.
Expected<std::unique_ptr<Drafter>> make_draft_model_drafter(std::unique_ptr<Model> model,
                                                            const DraftModelOptions& options);

// kInvalidArgument unless both tokenizers map the same ids to the same pieces, control flags
// included: says at which ids they differ. Logit widths may differ, since some files pad them.
Status check_same_vocabulary(const Tokenizer& target, const Tokenizer& draft);

}  // namespace aerie

// A draft model with another tokenizer, met on the ground of text: it reads the sequence's text in
// its own tokens, and what it says is read in the target's (as Timor et al. 2502.05202 do).
#pragma once

#include <memory>

#include "draft/drafter.h"
#include "draft/network/draft_model.h"
#include "model/model.h"
#include "tokenizer/tokenizer.h"

namespace aerie {

// The cache of such a draft model, for all sequences.
KvCache::Creation text_draft_cache(const ModelConfig& model, const DraftModelOptions& options);

// A chain of point masses: the draft model's likeliest continuation, of num_steps tokens of its own
// (0: num_tokens), as far as it makes whole tokens of the target, num_tokens at most. Control
// tokens are no text, and are left out of what the draft model reads.
//
// Each round reads the last few of its tokens anew together with the text that has come since; the
// cache keeps what stays the same, drafted tokens that came true included. Of `options` it takes
// those two and the limits, and neither trees nor a vocabulary. Unlike other drafters it allocates
// in propose(), since tokenizers do. The tokenizers must outlive it.
Expected<std::unique_ptr<Drafter>> make_text_draft_model_drafter(std::unique_ptr<Model> model,
                                                                 const Tokenizer& target,
                                                                 const Tokenizer& draft,
                                                                 const DraftModelOptions& options);

}  // namespace aerie

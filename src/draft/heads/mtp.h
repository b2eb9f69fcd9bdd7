// Modules for multi-token prediction, which come with a model (DeepSeek-V3, 2412.19437; MiMo,
// 2505.07608; Qwen3-Next and 3.5; GLM-4.5) or are trained for one (the package speculators).
#pragma once

#include <memory>
#include <optional>

#include "base/status.h"
#include "draft/heads/feature_head.h"
#include "draft/heads/head_parts.h"
#include "model/import/head_file.h"

namespace aerie {

// What implementations do not agree about, and no checkpoint says; none: what the layout's own do.
struct MtpSwitches {
  // The target's hidden state behind its final norm, not in front of it.
  std::optional<bool> feature_normed = {};
  // What a module hands on is behind the norm that comes before the LM head, not in front of it.
  std::optional<bool> handed_normed = {};
  // The projection takes [hidden state; embedding], not [embedding; hidden state].
  std::optional<bool> hidden_first = {};
  // The embedding in the row of position 0 is zero.
  std::optional<bool> zero_first = {};
};

struct MtpOptions : HeadOptions, MtpSwitches {};

// z = eh_proj([enorm(embedding of the next token); hnorm(f)]), f the target's hidden state or what
// the row above handed on; out = a decoder layer of z; logits = head(shared_head.norm(out)).
//
// Layouts and what is usual with them:
//   DeepSeek    layers.N.{enorm, hnorm, eh_proj, shared_head.norm} and the layer's own tensors, N
//               behind the model's layers; both norms, zero_first. GLM: hands on in front of it.
//   MiMo        model.mtp_layers.N.{token_layernorm, hidden_layernorm, input_proj,
//               final_layernorm}; the feature in front of the norm, hidden_first, zero_first.
//   speculators mtp_layers.N. and the same; the feature in front of the norm.
//   Qwen        mtp.{pre_fc_norm_embedding, pre_fc_norm_hidden, fc, norm}, mtp.layers.N.
// Norms of Qwen3-Next and 3.5 multiply with 1 + w, and their attention is gated if the matrix of
// queries is twice as high. The file may be the target's own: what else it holds is passed over.
//
// Of several modules the n-th drafts the n-th token, the last all further ones; each reads all
// rows, with the features that the one before it made of the row before. The first rows of a
// sequence have none such: zeros stand for them.
//
// kInvalidArgument, naming what differs, for a head of another model, for one without a module, and
// if the options name layers to tap; kUnsupported for layers with latent attention or a mixture of
// experts, and for a module's tensor that has no place.
Expected<std::unique_ptr<FeatureHead>> load_mtp_head(HeadFile& file, const HeadTarget& target,
                                                     const MtpOptions& options);

}  // namespace aerie

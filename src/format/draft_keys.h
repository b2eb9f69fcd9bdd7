// Metadata of a draft model whose rows of embedding and LM head are not the target's: the tokens of
// the target that they stand for, as a draft head's tensor "d2t" has them (docs/formats.md), and
// how many tokens the target has. A folder has them as such a tensor and as "target_vocab_size" of
// config.json.
#pragma once

namespace aerie {

inline constexpr const char* kDraftIdsKey = "draft.d2t";
inline constexpr const char* kDraftTargetKey = "draft.target_vocab_size";

}  // namespace aerie

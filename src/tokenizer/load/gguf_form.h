// The GGUF metadata of tokenizers that come from other files.
#pragma once

#include <vector>

#include "base/status.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/load/gguf_metadata.h"
#include "tokenizer/load/hf_components.h"
#include "tokenizer/pieces/bpe.h"
#include "tokenizer/vocabulary.h"

namespace aerie {

// Tokens, types, ids and flags; notes for what GGUF has no key for. `ends` are more ids that end a
// reply.
GgufTokenizerMetadata gguf_vocabulary(const Vocabulary& vocabulary, const AddedTokens& added,
                                      const std::vector<int64_t>& ends);

// "gpt2": byte-level BPE. kUnsupported if the pre-tokenizer has no name.
Expected<GgufTokenizerMetadata> gguf_of_byte_level(GgufTokenizerMetadata metadata,
                                                   const Vocabulary& vocabulary, const Bpe& model,
                                                   const HfShape& shape);

// "llama": BPE over characters whose merges are what scores would give. kUnsupported if they are
// not, or if the text is changed in ways other than SentencePiece's.
Expected<GgufTokenizerMetadata> gguf_of_merges(GgufTokenizerMetadata metadata,
                                               const Vocabulary& vocabulary, const Bpe& model,
                                               const HfShape& shape);

}  // namespace aerie

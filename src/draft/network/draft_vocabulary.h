// The tokens that a drafter proposes among, where these are fewer than the target's: those that
// texts use most (FR-Spec, Zhao et al. 2025, 2502.14856).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/model_file.h"

namespace aerie {

// The first `size` ids (0: all) of a list that has the most frequent first, in ascending order. A
// JSON array of integers; a text with one in each line, as `aerie tokenize --frequencies` writes
// it; or a safetensors file with one tensor of integers, as `aerie inspect FILE.pt --convert` makes
// of lists that torch.save() wrote. `vocab` is the target's.
//
// kNotFound if there is no such file; kInvalidData, naming line or place, for what is not an id, an
// id that the target does not have, and one that is there twice; kInvalidArgument if there are
// fewer than `size` ids, or none; kUnsupported, saying how to convert it, for PyTorch's files.
Expected<std::vector<int32_t>> read_draft_vocabulary(const std::string& path, int size, int vocab);

// "d2t" of a pruned vocabulary as the target's ids: index i stands for i + d2t[i], unless that
// makes no sense, and for d2t[i] then. kInvalidData if that makes none either.
Expected<std::vector<int32_t>> read_draft_ids(std::span<const int64_t> d2t, int target_vocab,
                                              const std::string& where);

// The same of a draft model: its file's metadata kDraftIdsKey, which stand for the first rows of
// its embedding and LM head. kInvalidData if they are more than its `vocab` rows; kInvalidArgument,
// naming both figures, if it says that its target has another number of tokens. Requires
// that key.
Expected<std::vector<int32_t>> read_draft_ids(const ModelFile& file, int vocab, int target_vocab);

// Whether these are ids of `vocab` tokens in ascending order, none of them twice.
bool are_ascending_ids(std::span<const int32_t> ids, int vocab);

}  // namespace aerie

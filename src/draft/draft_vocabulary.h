// The tokens that a drafter proposes among, where these are fewer than the target's: those that
// texts use most (FR-Spec, Zhao et al. 2025, 2502.14856).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

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

}  // namespace aerie

// How a folder orders what belongs to the heads of linear attention, and how GGUF does: folders
// have the heads of a key head side by side, and Qwen3-Next's one matrix in which each key head's
// queries, keys, values and gates lie together.
#pragma once

#include "base/status.h"
#include "core/model_config.h"
#include "format/model_file.h"
#include "model/import/hugging_face_import.h"

namespace aerie {

// Whether the change is one of those that arrange() makes.
bool arranges_heads(TensorChange change);

// Whether blocks of so many weights of a row stay whole.
bool keeps_blocks(TensorChange change, const LinearAttention& shape, int64_t block);

// Rows of the result of a tensor with so many; -1: it has none of that many.
int64_t arranged_rows(TensorChange change, const LinearAttention& shape, int64_t rows);

// The shape of the result of a vector of this length.
Shape arranged_vector(TensorChange change, const LinearAttention& shape, int64_t length);

// The tensor [columns, rows] in GGUF's order, which may be a view of what it was made of. Requires
// blocks that are kept.
Expected<TensorData> arrange_heads(TensorChange change, const LinearAttention& shape,
                                   const TensorView& from);

}  // namespace aerie

// How a folder keeps the matrices of latent attention's heads, and how GGUF does: a folder has one
// for all, [heads][plain + value_dim] rows of the latent's length, that makes keys and values of a
// latent; GGUF has a stack for keys, which lie on their side so that queries are multiplied, and
// one for values.
#pragma once

#include "base/status.h"
#include "core/model_config.h"
#include "format/model_file.h"
#include "model/import/hugging_face_import.h"

namespace aerie {

// The rows of that one matrix.
int64_t latent_rows(const LatentAttention& latent, int64_t heads);

// What GGUF has of it, by kLatentKeys or kLatentValues: the shape, and the tensor. `whole` is of a
// type whose elements stand by themselves.
Shape latent_shape(TensorChange change, const LatentAttention& latent, int64_t heads);
Expected<TensorData> divide_latent(TensorChange change, const LatentAttention& latent,
                                   int64_t heads, const TensorView& whole);

}  // namespace aerie

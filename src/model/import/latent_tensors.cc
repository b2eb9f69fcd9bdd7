#include "model/import/latent_tensors.h"

#include <cassert>
#include <cstring>

namespace aerie {

int64_t latent_rows(const LatentAttention& latent, int64_t heads) {
  return heads * (int64_t{latent.plain} + latent.value_dim);
}

Shape latent_shape(TensorChange change, const LatentAttention& latent, int64_t heads) {
  if (change == TensorChange::kLatentKeys) return {latent.plain, latent.rank, heads, 1};
  return {latent.rank, latent.value_dim, heads, 1};
}

Expected<TensorData> divide_latent(TensorChange change, const LatentAttention& latent,
                                   int64_t heads, const TensorView& whole) {
  assert(dtype_info(whole.dtype).block_elements == 1);
  const auto element = static_cast<size_t>(dtype_info(whole.dtype).block_bytes);
  const size_t row = element * static_cast<size_t>(latent.rank);
  TensorData out;
  out.view = {whole.dtype, Device::kCpu, latent_shape(change, latent, heads), nullptr};
  AERIE_ASSIGN_OR_RETURN(out.owned, Buffer::allocate(static_cast<size_t>(out.view.bytes())));
  out.view.data = out.owned.data();
  std::byte* to = out.owned.data();
  for (int64_t h = 0; h < heads; ++h) {
    const std::byte* keys = whole.row(h * (latent.plain + latent.value_dim));
    if (change == TensorChange::kLatentValues) {
      const size_t bytes = row * static_cast<size_t>(latent.value_dim);
      std::memcpy(to, keys + row * static_cast<size_t>(latent.plain), bytes);
      to += bytes;
      continue;
    }
    for (size_t i = 0; i < static_cast<size_t>(latent.rank); ++i) {
      for (size_t d = 0; d < static_cast<size_t>(latent.plain); ++d, to += element) {
        std::memcpy(to, keys + d * row + i * element, element);
      }
    }
  }
  return out;
}

}  // namespace aerie

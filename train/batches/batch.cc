#include "train/batches/batch.h"

#include <algorithm>
#include <vector>

namespace aerie::train {

// A row that lies further on belongs to the same document where its position is further on by as
// much: positions begin anew with every document.
at::Tensor Batch::shifted(const at::Tensor& x, int64_t by) const {
  if (by == 0) {
    return x;
  }
  const int64_t rows = x.size(0), kept = std::max<int64_t>(rows - by, 0);
  std::vector<int64_t> shape = x.sizes().vec();
  shape[0] = rows - kept;
  const at::Tensor none = at::zeros(shape, x.options().requires_grad(false));
  const at::Tensor nowhere = at::full({rows - kept}, -1, positions.options());
  const at::Tensor moved = at::cat({x.narrow(0, rows - kept, kept), none});
  at::Tensor beyond = at::cat({positions.narrow(0, rows - kept, kept), nowhere}).ne(positions + by);
  while (beyond.dim() < x.dim()) beyond = beyond.unsqueeze(-1);
  return moved.masked_fill(beyond, 0);
}

}  // namespace aerie::train

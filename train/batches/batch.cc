#include "train/batches/batch.h"

#include <algorithm>
#include <vector>

namespace aerie::train {

at::Tensor Batch::shifted(const at::Tensor& x, int64_t by) const {
  if (by == 0) {
    return x;
  }
  std::vector<at::Tensor> parts;
  for (int64_t d = 0; d < documents.count(); ++d) {
    const int64_t begin = documents.start(d), rows = documents.length(d);
    const int64_t kept = std::max<int64_t>(rows - by, 0);
    std::vector<int64_t> shape = x.sizes().vec();
    shape[0] = rows - kept;
    parts.push_back(x.narrow(0, begin + rows - kept, kept));
    parts.push_back(at::zeros(shape, x.options().requires_grad(false)));
  }
  return at::cat(parts, 0);
}

}  // namespace aerie::train

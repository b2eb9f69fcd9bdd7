// Several texts side by side in one run of rows, so that products see many rows and none is
// padding.
#pragma once

#include <cstdint>
#include <vector>

namespace aerie::train {

// Text d has the rows [starts[d], starts[d + 1]).
struct Documents {
  std::vector<int64_t> starts = {0};

  int64_t count() const { return static_cast<int64_t>(starts.size()) - 1; }
  int64_t rows() const { return starts.back(); }
  int64_t length(int64_t d) const {
    return starts[static_cast<size_t>(d) + 1] - starts[static_cast<size_t>(d)];
  }
  int64_t start(int64_t d) const { return starts[static_cast<size_t>(d)]; }
};

}  // namespace aerie::train

// Where LibTorch comes without what several processes need.
#include "train/run/groups/group.h"

namespace aerie::train {

Expected<std::unique_ptr<Group>> join_processes(const GroupOptions& options) {
  (void)options;
  return Status(StatusCode::kUnsupported,
                "--world: this build trains in one process only; for several, build with the "
                "headers of c10d and Gloo (Debian: libtorch-dev and libgloo-dev)");
}

}  // namespace aerie::train

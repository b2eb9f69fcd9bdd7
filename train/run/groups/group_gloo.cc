// Processes on CPUs, by c10d and Gloo.
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "train/run/groups/group.h"
#include "train/run/groups/group_c10d.h"

namespace aerie::train {

Expected<std::unique_ptr<Group>> join_processes(const GroupOptions& options) {
  return guarded("--rendezvous " + options.rendezvous, [&]() -> Expected<std::unique_ptr<Group>> {
    AERIE_ASSIGN_OR_RETURN(const auto store, open_store(options));
    const auto own = c10d::ProcessGroupGloo::Options::create();
    own->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
    own->timeout = kPatience;
    return std::unique_ptr<Group>(std::make_unique<C10dGroup<c10d::ProcessGroupGloo>>(
        c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.world, own),
        at::kCPU));
  });
}

}  // namespace aerie::train

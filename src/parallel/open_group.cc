#include "parallel/open_group.h"

#include <dlfcn.h>

#include <string>

#include "base/errors.h"
#include "base/system/parts.h"
#include "parallel/mpi/mpi_group.h"

namespace aerie {
namespace {

constexpr const char* kLibrary = "libaerie_mpi.so";

Status load_library(OpenMpiGroup*& open) {
  const std::string found = find_part(kLibrary);
  if (found.empty()) {
    return not_supported(
        "several processes for one model need {}, which is not beside this program: install Open "
        "MPI (apt install libopenmpi-dev openmpi-bin) and build again",
        kLibrary);
  }
  // Parts that Open MPI loads itself look for its names among those that all see.
  const Expected<void*> library = open_part(found, PartNames::kShared);
  if (!library.ok()) {
    return not_supported("{} cannot be loaded: {}; install Open MPI (apt install openmpi-bin)",
                         found, library.status().message());
  }
  open = reinterpret_cast<OpenMpiGroup*>(dlsym(*library, kOpenMpiGroup));
  if (open == nullptr) return not_supported("{} is of another version", found);
  return {};
}

}  // namespace

Expected<std::shared_ptr<Group>> open_group(int size) {
  OpenMpiGroup* open = nullptr;
  AERIE_RETURN_IF_ERROR(load_library(open));
  std::string error;
  std::shared_ptr<Group> group;
  open(group, error);
  if (group == nullptr) return not_supported("Open MPI cannot be started: {}", error);
  if (group->size() != size) {
    return invalid_argument(
        "--tensor-parallel {}, but {} started together: type mpirun -np {} before the command",
        size,
        group->size() == 1 ? "one process was" : fmt::format("{} processes were", group->size()),
        size);
  }
  return group;
}

}  // namespace aerie

#include "parallel/open_group.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "parallel/mpi/mpi_group.h"

namespace aerie {
namespace {

constexpr const char* kLibrary = "libaerie_mpi.so";

std::vector<std::string> places() {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::string> found;
  for (const char* const beside : {".", "../lib", "../" AERIE_LIBDIR}) {
    const std::filesystem::path place = folder / beside / kLibrary;
    if (std::filesystem::exists(place, ignored)) found.push_back(place.lexically_normal().string());
  }
  return found;
}

Status load_library(OpenMpiGroup*& open) {
  const std::vector<std::string> found = places();
  if (found.empty()) {
    return not_supported(
        "several processes for one model need {}, which is not beside this program: install Open "
        "MPI (apt install libopenmpi-dev openmpi-bin) and build again",
        kLibrary);
  }
  // Parts that Open MPI loads itself look for its names among those that all see.
  void* const library = dlopen(found.front().c_str(), RTLD_NOW | RTLD_GLOBAL);
  const char* const error = library == nullptr ? dlerror() : nullptr;
  if (library == nullptr) {
    return not_supported("{} cannot be loaded: {}; install Open MPI (apt install openmpi-bin)",
                         found.front(), error != nullptr ? error : "for a reason unknown");
  }
  open = reinterpret_cast<OpenMpiGroup*>(dlsym(library, kOpenMpiGroup));
  if (open == nullptr) return not_supported("{} is of another version", found.front());
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

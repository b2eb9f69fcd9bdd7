// What libaerie_mpi.so has for the program.
#pragma once

#include <memory>
#include <string>

#include "parallel/rank_group.h"

namespace aerie {

// The processes that mpirun started, as a group; why not, if there is none to be had. Each
// process tells the others twice a second that it is alive, and one that has not been heard of for
// four seconds ends all of them, with a message on standard error that names it.
using OpenMpiGroup = void(std::shared_ptr<Group>& group, std::string& error);
inline constexpr const char* kOpenMpiGroup = "aerie_open_mpi_group_1";

}  // namespace aerie

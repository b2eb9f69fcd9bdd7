// Finds the processes that a launcher started together.
#pragma once

#include <memory>

#include "base/status.h"
#include "parallel/rank_group.h"

namespace aerie {

// Those that mpirun started, if they are `size`. Open MPI is spoken to by a library of its own,
// libaerie_mpi.so, which is looked for beside the program and in the lib folder beside its folder,
// so that a program without it starts without Open MPI. Once in a process.
//
// kUnsupported, saying what to install, without that library; kInvalidArgument, saying what to
// type, if they are not so many.
Expected<std::shared_ptr<Group>> open_group(int size);

}  // namespace aerie

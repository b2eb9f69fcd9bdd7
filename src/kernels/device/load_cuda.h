// Opens NVIDIA's GPUs, through a library of its own that has their code.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "kernels/device/device.h"

namespace aerie::device {

// GPU `index` of those that the driver counts. The library is the file `library`, or where that is
// "" libaerie_cuda.so beside the program or in the lib folder beside its folder, so that a program
// without it starts without a driver; it stays open for the rest of the process, which has one of
// them. It has to be of the same build.
//
// kUnsupported, saying what to build or install, without a library or driver that can be used, and
// of a GPU that is too old; kInvalidArgument if there are not so many.
Expected<std::unique_ptr<Device>> open_cuda(int index, const std::string& library = "");

}  // namespace aerie::device

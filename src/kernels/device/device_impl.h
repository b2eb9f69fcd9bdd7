// Device on the runtime that this is compiled for.
#pragma once

#include <cstddef>

#include "kernels/device/device.h"

namespace aerie::device {

// Null and the reason in `error` if it cannot be opened.
Device* make_device(int index, char* error, size_t error_size);

}  // namespace aerie::device

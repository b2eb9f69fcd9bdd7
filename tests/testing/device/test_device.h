// The device of tests: the emulated one, or the one that AERIE_TEST_DEVICE names ("cuda:0").
#pragma once

#include "kernels/device/device.h"

namespace aerie::test {

// Lives as long as the program; one thread at a time. Fails the test if it cannot be opened.
device::Device& device_of_tests();
// Whether it is the emulated one, which can be told to fail.
bool is_emulated();

}  // namespace aerie::test

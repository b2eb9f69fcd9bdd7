// Runs launches, one at a time: what the emulated runtime needs of the emulator.
#pragma once

#include <cstddef>
#include <functional>

#include "kernels/simt/emulator.h"

namespace simt {

// Shared memory that a block may have at most, on any device.
inline constexpr size_t kMostSharedBytes = 227 * 1024;

struct Launch {
  Shape shape;
  std::function<void()> thread;  // what each thread does
};

// Runs `launch` to its end. `next`, if any, is the dependent launch that comes right behind it: its
// first block goes as far as it may before `launch` even starts, and waits there until it is
// run, which has to be the next call. One call at a time, from any host thread.
void run_launch(const Launch& launch, const Launch* next);

// The emulator's part of counts().
long switches();

}  // namespace simt

// Measures the memory of a program that links memory_meter.cc, which replaces operator new. Not for
// programs with threads.
#pragma once

#include <cstddef>

namespace aerie::test {

struct MemoryUse {
  size_t total = 0;    // bytes asked for, whether or not they were given back
  size_t largest = 0;  // of one request
  size_t peak = 0;     // the most bytes held at once, with what the allocator rounds up
};

// Starts anew; `peak` is above what is held now.
void reset_memory_use();
MemoryUse memory_use();

}  // namespace aerie::test

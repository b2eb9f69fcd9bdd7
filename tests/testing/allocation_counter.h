// Counts allocations of a program that links allocation_counter.cc, which replaces operator new.
#pragma once

#include <cstdint>

namespace aerie {

// Calls of operator new in this program so far.
int64_t allocations();

}  // namespace aerie

// How a program begins and ends.
#pragma once

#include <functional>

#include "base/status.h"

namespace aerie {

// What main() is made of: runs `body` and returns its exit status, or 1 with a message on standard
// error for what it did not catch (no more memory, no more threads). First it claims the standard
// descriptors (base/standard_streams.h). What a thread does not catch ends the program in the same
// way. Once in a program.
int run_program(const std::function<int()>& body);

// The exit status of a program whose work came to this: its own if standard output took everything;
// else, with a message on standard error, 2 for what the caller can correct on the command line, 1
// for everything else.
int exit_with(const Expected<int>& outcome);

}  // namespace aerie

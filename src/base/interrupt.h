// Ctrl-C as a flag, for programs alone.
#pragma once

#include <signal.h>

#include <atomic>

namespace aerie {

inline std::atomic<bool> interrupted{false};

// From here on Ctrl-C sets `interrupted` and interrupts system calls, instead of ending the
// program.
inline void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted.store(true); };
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace aerie

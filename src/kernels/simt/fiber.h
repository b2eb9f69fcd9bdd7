// A stack that is switched to by hand.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {

// No power of two, lest all stacks want the same lines of the caches.
inline constexpr size_t kStackBytes = 65 * 4096;

// Mapped when first used, and kept.
struct Stack {
  char* memory = nullptr;
  char* top = nullptr;
  void* tsan_fiber = nullptr;
};

// Where a stack was left: that of a fiber, or that of the thread that runs the fibers.
struct Context {
#if defined(__x86_64__)
  void* top = nullptr;
#else
  ucontext_t registers;
#endif
  void* tsan_fiber = nullptr;
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* fake_stack = nullptr;  // of AddressSanitizer; fibers after one another share it
};

// The context of the calling thread, as what fibers come back to.
void prepare_caller(Context& context);

// The context starts in entry() when it is switched to. entry() calls fiber_started() first, has no
// variables and never returns.
void prepare_fiber(Context& context, Stack& stack, void (*entry)());
void fiber_started(Context& context);

// Goes on with `to`, until somebody switches to `from`.
void switch_fiber(Context& from, Context& to);

}  // namespace simt

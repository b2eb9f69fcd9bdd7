#include "kernels/simt/fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#include "kernels/simt/sanitizers.h"

#if defined(__x86_64__)
// Saves what a call keeps on the stack that is left, and takes it from the one that is gone to. The
// modes of floating point stay as they are: kernels do not change them.
asm(R"(
.text
.globl simt_switch_stack
.type simt_switch_stack,@function
simt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch_stack,.-simt_switch_stack
)");
extern "C" void simt_switch_stack(void** save, void* to);
#endif

namespace simt {
namespace {

constexpr size_t kGuardBytes = 4096;

void map_stack(Stack& stack) {
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    std::fprintf(stderr, "simt: no memory for the stacks of emulated threads\n");
    std::abort();
  }
  stack.memory = static_cast<char*>(memory);
  static unsigned count = 0;
  stack.top = stack.memory + kStackBytes - count++ * 5 % 64 * 64;
#if SIMT_TSAN
  stack.tsan_fiber = __tsan_create_fiber(0);
#endif
}

}  // namespace

void prepare_caller(Context& context) {
#if SIMT_TSAN
  context.tsan_fiber = __tsan_get_current_fiber();
#elif SIMT_ASAN
  thread_local void* bottom = nullptr;
  thread_local size_t bytes = 0;
  if (bottom == nullptr) {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) std::abort();
    pthread_attr_getstack(&attributes, &bottom, &bytes);
    pthread_attr_destroy(&attributes);
  }
  context.bottom = bottom;
  context.bytes = bytes;
#else
  static_cast<void>(context);
#endif
}

void prepare_fiber(Context& context, Stack& stack, void (*entry)()) {
  if (stack.memory == nullptr) map_stack(stack);
  context.tsan_fiber = stack.tsan_fiber;
  context.bottom = stack.memory + kGuardBytes;
  context.bytes = static_cast<size_t>(stack.top - (stack.memory + kGuardBytes));
  // The frames that the last fiber on this stack never left.
  unpoison(stack.top - 4096, 4096);
#if defined(__x86_64__)
  auto* top = reinterpret_cast<void**>(stack.top);
  *--top = nullptr;  // where entry() would return to
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context.top = static_cast<void*>(top);
#else
  getcontext(&context.registers);
  context.registers.uc_stack.ss_sp = stack.memory + kGuardBytes;
  context.registers.uc_stack.ss_size = context.bytes;
  context.registers.uc_link = nullptr;
  makecontext(&context.registers, entry, 0);
#endif
}

void fiber_started([[maybe_unused]] Context& context) {
#if SIMT_ASAN
  __sanitizer_finish_switch_fiber(context.fake_stack, nullptr, nullptr);
#endif
}

void switch_fiber(Context& from, Context& to) {
#if SIMT_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.bytes);
#endif
#if SIMT_TSAN
  __tsan_switch_to_fiber(to.tsan_fiber, 1);
#endif
#if defined(__x86_64__)
  simt_switch_stack(&from.top, to.top);
#else
  swapcontext(&from.registers, &to.registers);
#endif
#if SIMT_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

}  // namespace simt

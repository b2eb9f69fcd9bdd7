// What the sanitizers have to be told of fibers and of memory that comes and goes. Empty without
// them.
#pragma once

#include <cstddef>

// Where a file is compiled without the checks of a program that has them, the build defines
// SIMT_TSAN.
#if defined(__SANITIZE_THREAD__) && !defined(SIMT_TSAN)
#define SIMT_TSAN 1
#elif defined(__has_feature) && !defined(SIMT_TSAN)
#if __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#ifndef SIMT_TSAN
#define SIMT_TSAN 0
#endif
#ifndef SIMT_ASAN
#define SIMT_ASAN 0
#endif

extern "C" {
#if SIMT_TSAN
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
#endif
#if SIMT_ASAN
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, size_t* size);
void __asan_poison_memory_region(const volatile void* address, size_t size);
void __asan_unpoison_memory_region(const volatile void* address, size_t size);
#endif
}

namespace simt {

// What a thread of a kernel did before release() is seen by those that acquire() the same tag.
inline void release([[maybe_unused]] void* tag) {
#if SIMT_TSAN
  __tsan_release(tag);
#endif
}
inline void acquire([[maybe_unused]] void* tag) {
#if SIMT_TSAN
  __tsan_acquire(tag);
#endif
}

// While it lives, what the library's functions read and write is not looked at, either.
class Unwatched {
 public:
  Unwatched() {
#if SIMT_TSAN
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  }
  ~Unwatched() {
#if SIMT_TSAN
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;
};

inline void poison([[maybe_unused]] const void* memory, [[maybe_unused]] size_t bytes) {
#if SIMT_ASAN
  __asan_poison_memory_region(memory, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* memory, [[maybe_unused]] size_t bytes) {
#if SIMT_ASAN
  __asan_unpoison_memory_region(memory, bytes);
#endif
}

}  // namespace simt

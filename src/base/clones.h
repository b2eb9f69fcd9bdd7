// Loops compiled for several instruction sets, of which the processor's is chosen at load time: for
// plain loops on integers, or on floats without sums, whose results do not depend on it.
#pragma once

// The loader would choose before a sanitizer is ready; other processors have one level here.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AERIE_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define AERIE_SANITIZED 1
#endif
#endif
#if defined(__x86_64__) && !defined(AERIE_SANITIZED)
#define AERIE_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define AERIE_CLONES
#endif
#undef AERIE_SANITIZED

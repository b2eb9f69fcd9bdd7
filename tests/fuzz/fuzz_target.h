// The body of a fuzzer: AERIE_FUZZ_TARGET(json) { ... data ... size ... }. As a libFuzzer program
// of its own (AERIE_FUZZ_PROGRAM) it is what libFuzzer calls, else the function fuzz_json(), which
// tests run on the seeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace aerie {

// What a fuzzer finds out, whatever else is checked in a build.
inline void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace aerie

#ifdef AERIE_FUZZ_PROGRAM
#define AERIE_FUZZ_TARGET(name) \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#else
#define AERIE_FUZZ_TARGET(name)                      \
  int fuzz_##name(const uint8_t* data, size_t size); \
  int fuzz_##name(const uint8_t* data, size_t size)
#endif

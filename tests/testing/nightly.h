// Whether all is to be tried, however long it takes: by day every pair of settings meets, at night
// every combination does.
#pragma once

#include <cstdlib>

namespace aerie::test {

// AERIE_NIGHTLY is set, as `./test.sh --nightly` does.
inline bool nightly() {
  static const bool yes = std::getenv("AERIE_NIGHTLY") != nullptr;
  return yes;
}

}  // namespace aerie::test

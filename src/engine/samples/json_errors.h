// Header-only, for this folder and train/data/.
#pragma once

#include "base/status.h"

namespace aerie {

// A key that is absent makes a file of ours a broken one; it does not make the file absent.
inline Status absent_is_broken(const Status& status) {
  return status.code() == StatusCode::kNotFound ? Status(StatusCode::kInvalidData, status.message())
                                                : status;
}

}  // namespace aerie

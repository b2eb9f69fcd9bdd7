// The obvious way, one element after the other, in float on dequantised weights and with
// activations that are never quantised: the yardstick for the other backends, and what runs where
// they cannot.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace aerie::kernels {

std::unique_ptr<const Backend> make_reference_backend();

}  // namespace aerie::kernels

#pragma once

#include <string>

namespace aerie {

// As it calls itself, or its architecture; "unknown" if even that cannot be told.
std::string processor_name();

}  // namespace aerie

// Libraries of this project that it opens only where they are needed: not every machine has what
// they need.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace aerie {

// The file of that name beside the program or the library that this code is in, or in the lib
// folder beside that folder; "" if there is none.
std::string find_part(const std::string& file);

// Whether libraries that the part opens by itself look for their names in what it brings.
enum class PartNames : uint8_t { kOwn, kShared };

// Opens it for the rest of the process; what dlsym() takes. kUnsupported, with the reason alone, if
// it cannot be.
Expected<void*> open_part(const std::string& path, PartNames names);

}  // namespace aerie

// Values from JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "jinja/values/runtime.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

// Strings are not copied: `json` outlives the runtime.
Value from_json(Runtime& runtime, const nlohmann::ordered_json& json, int nesting = 0);

}  // namespace aerie::jinja

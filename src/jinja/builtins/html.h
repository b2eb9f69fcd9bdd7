// Text that goes into HTML (the filters escape and safe).
#pragma once

#include <string_view>

#include "jinja/values/runtime.h"

namespace aerie::jinja {

void write_escaped(TextBuilder& out, std::string_view text);

}  // namespace aerie::jinja

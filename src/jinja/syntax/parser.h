// Tokens to a program.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"
#include "jinja/limits.h"
#include "jinja/syntax/ast.h"

namespace aerie::jinja {

// kInvalidData for what is no Jinja, kUnsupported for a tag, filter or test that is not known here
// (naming it), kResourceExhausted for what is beyond the limits. Messages say where.
Expected<std::shared_ptr<const Program>> parse_program(std::string_view source,
                                                       const Limits& limits);

}  // namespace aerie::jinja

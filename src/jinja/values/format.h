// Python's two ways of formatting: '%s' % x and '{}'.format(x).
#pragma once

#include <string_view>

#include "base/status.h"
#include "jinja/builtins/native.h"
#include "jinja/values/runtime.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

// `arguments` is a tuple of values, a dict for %(name)s, or one value.
Expected<Value> format_percent(Runtime& runtime, std::string_view pattern, const Value& arguments);
Expected<Value> format_braces(Runtime& runtime, std::string_view pattern,
                              const Arguments& arguments);

}  // namespace aerie::jinja

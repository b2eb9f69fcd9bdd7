// Python's two ways of formatting: '%s' % x and '{}'.format(x).
#pragma once

#include <string_view>

#include "base/status.h"
#include "tokenizer/jinja/native.h"
#include "tokenizer/jinja/runtime.h"
#include "tokenizer/jinja/value.h"

namespace aerie::jinja {

// `arguments` is a tuple of values, a dict for %(name)s, or one value.
Expected<Value> format_percent(Runtime& runtime, std::string_view pattern, const Value& arguments);
Expected<Value> format_braces(Runtime& runtime, std::string_view pattern,
                              const Arguments& arguments);

}  // namespace aerie::jinja

// Filling dicts.
#pragma once

#include "base/status.h"
#include "jinja/builtins/native.h"
#include "jinja/values/runtime.h"

namespace aerie::jinja {

// dict.update: from at most one dict or sequence of pairs, then from the named arguments.
Status update_dict(Runtime& runtime, Dict* dict, const Arguments& arguments);

}  // namespace aerie::jinja

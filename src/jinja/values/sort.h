// Sorting as Python does: stable, with an error where two keys cannot be compared.
#pragma once

#include <vector>

#include "base/status.h"
#include "jinja/values/runtime.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

struct SortItem {
  std::vector<Value> keys;  // compared one after the other
  Value value;
};

// Equal items keep their order, in reverse too.
Status stable_sort(Runtime& runtime, std::vector<SortItem>& items, bool reverse);

// Lower case for text, everything else as it is.
Expected<Value> without_case(Runtime& runtime, const Value& value);

}  // namespace aerie::jinja

#include "jinja/values/sort.h"

#include <algorithm>

#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

Expected<bool> less(Runtime& runtime, const SortItem& a, const SortItem& b) {
  for (size_t i = 0; i < a.keys.size(); ++i) {
    const bool last = i + 1 == a.keys.size();
    if (!last) {
      AERIE_ASSIGN_OR_RETURN(const bool same, equal(runtime, a.keys[i], b.keys[i]));
      if (same) continue;
    }
    return ordered(runtime, Operator::kLess, a.keys[i], b.keys[i]);
  }
  return false;
}

}  // namespace

// Not std::stable_sort: a comparison may fail, and what a hostile order (NaN) does to that is not
// defined.
Status stable_sort(Runtime& runtime, std::vector<SortItem>& items, bool reverse) {
  const size_t count = items.size();
  std::vector<SortItem> merged(count);
  for (size_t width = 1; width < count; width *= 2) {
    for (size_t start = 0; start < count; start += 2 * width) {
      const size_t middle = std::min(start + width, count);
      const size_t end = std::min(start + 2 * width, count);
      size_t left = start, right = middle;
      for (size_t out = start; out < end; ++out) {
        bool takes_right = left == middle;
        if (left < middle && right < end) {
          AERIE_ASSIGN_OR_RETURN(takes_right, reverse ? less(runtime, items[left], items[right])
                                                      : less(runtime, items[right], items[left]));
        }
        merged[out] = std::move(items[takes_right ? right++ : left++]);
      }
    }
    items.swap(merged);
  }
  return {};
}

Expected<Value> without_case(Runtime& runtime, const Value& value) {
  if (!value.is_text()) return value;
  AERIE_RETURN_IF_ERROR(runtime.spend_text(4 * value.view().size()));
  return runtime.text(to_lower(value.view()));
}

}  // namespace aerie::jinja

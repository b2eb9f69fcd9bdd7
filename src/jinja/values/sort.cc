#include <algorithm>

#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

bool less(Runtime& runtime, const SortItem& a, const SortItem& b) {
  size_t i = 0;
  while (i + 1 < a.keys.size() && equal(runtime, a.keys[i], b.keys[i])) ++i;
  return ordered(runtime, Operator::kLess, a.keys[i], b.keys[i]);
}

}  // namespace

// Not std::stable_sort: a comparison may fail, and what a hostile order (NaN) does to that is not
// defined.
void stable_sort(Runtime& runtime, std::vector<SortItem>& items, bool reverse) {
  const size_t count = items.size();
  std::vector<SortItem> merged(count);
  for (size_t width = 1; width < count && !runtime.failed(); width *= 2) {
    for (size_t start = 0; start < count; start += 2 * width) {
      const size_t middle = std::min(start + width, count);
      const size_t end = std::min(start + 2 * width, count);
      size_t left = start, right = middle;
      for (size_t out = start; out < end; ++out) {
        bool takes_right = left == middle;
        if (left < middle && right < end) {
          takes_right = reverse ? less(runtime, items[left], items[right])
                                : less(runtime, items[right], items[left]);
        }
        merged[out] = std::move(items[takes_right ? right++ : left++]);
      }
    }
    items.swap(merged);
  }
}

}  // namespace aerie::jinja

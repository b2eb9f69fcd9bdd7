#include "jinja/builtins/text_operations.h"

#include <algorithm>

#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

// Python puts an empty string before every character and at the end.
Expected<Value> replace_between(Runtime& runtime, std::string_view text, std::string_view by,
                                size_t most) {
  TextBuilder out(runtime);
  size_t done = 0;
  while (!out.full()) {
    if (done++ < most) out.add(by);
    if (text.empty()) break;
    const size_t length = next_character(text).length;
    out.add(text.substr(0, length));
    text.remove_prefix(length);
  }
  return out.value();
}

}  // namespace

Expected<Value> replace_text(Runtime& runtime, std::string_view text, std::string_view old,
                             std::string_view by, int64_t count) {
  AERIE_RETURN_IF_ERROR(runtime.spend_text(text.size() + old.size()));
  const size_t most = count < 0 ? SIZE_MAX : static_cast<size_t>(count);
  if (old.empty()) return replace_between(runtime, text, by, most);
  AERIE_RETURN_IF_ERROR(runtime.claim(static_cast<Int>(text.size() / old.size()), sizeof(size_t)));
  const std::vector<size_t> places = find_all(text, old, {most, false});
  TextBuilder out(runtime);
  size_t done = 0;
  for (const size_t place : places) {
    out.add(text.substr(done, place - done));
    out.add(by);
    done = place + old.size();
    if (out.full()) break;
  }
  out.add(text.substr(done));
  return out.value();
}

Expected<Value> center_text(Runtime& runtime, const Text& text, int64_t width,
                            std::string_view fill) {
  AERIE_ASSIGN_OR_RETURN(const int64_t size, length(runtime, Value::of(&text)));
  const int64_t missing = std::max<int64_t>(0, width - size);
  AERIE_RETURN_IF_ERROR(runtime.claim(missing, fill.size()));
  // Python's rounding: the odd one goes to the left where the width is odd.
  const int64_t left = missing / 2 + (missing & width & 1);
  TextBuilder out(runtime);
  for (int64_t i = 0; i < left; ++i) out.add(fill);
  out.add(text.view);
  for (int64_t i = left; i < missing; ++i) out.add(fill);
  return out.value();
}

Status claim_strip(Runtime& runtime, const Text& chars) {
  AERIE_RETURN_IF_ERROR(runtime.spend(chars.view.size()));
  return runtime.claim(static_cast<Int>(chars.view.size()), sizeof(std::string_view));
}

Expected<Value> join_texts(Runtime& runtime, std::string_view separator, const Sequence& items) {
  TextBuilder out(runtime);
  bool first = true;
  for (const Value& item : items.items) {
    if (!first) out.add(separator);
    first = false;
    write_text(out, runtime, item);
    if (out.full()) break;
  }
  AERIE_RETURN_IF_ERROR(runtime.spend(items.items.size()));
  return out.value();
}

}  // namespace aerie::jinja

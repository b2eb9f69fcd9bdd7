// What filters and methods of strings share.
#pragma once

#include <string_view>

#include "base/status.h"
#include "jinja/values/runtime.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

// str.replace; all places if `count` is negative.
Expected<Value> replace_text(Runtime& runtime, std::string_view text, std::string_view old,
                             std::string_view by, int64_t count);
// str.center. `fill` is one character.
Expected<Value> center_text(Runtime& runtime, const Text& text, int64_t width,
                            std::string_view fill);
// Before characters.h's strip() with these characters.
Status claim_strip(Runtime& runtime, const Text& chars);
// str(separator).join(str(x) for x in items).
Expected<Value> join_texts(Runtime& runtime, std::string_view separator, const Sequence& items);

}  // namespace aerie::jinja

// Values from JSON, and the filter tojson.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "jinja/values/runtime.h"
#include "jinja/values/value.h"

namespace aerie::jinja {

// Strings are not copied: `json` outlives the runtime.
Value from_json(Runtime& runtime, const nlohmann::ordered_json& json, int nesting = 0);

// As Python's json.dumps writes.
struct JsonStyle {
  bool ascii = false;  // escapes everything else
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; absent: all on one line
  std::string_view item_separator =
      ", ";  // without the white space at its end where there is indent
  std::string_view key_separator = ": ";
};
Value to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace aerie::jinja

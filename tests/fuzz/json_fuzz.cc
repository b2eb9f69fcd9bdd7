// Whatever the bytes are, they are JSON as the library's own reader has it, or they are refused.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "format/json.h"
#include "tests/fuzz/fuzz_target.h"

namespace aerie {
namespace {

void check_equal(const Json& ours, const Json& theirs) {
  require(ours.type() == theirs.type() && ours.size() == theirs.size());
  require(ours == theirs);
}

// Getters answer or refuse, whatever is there.
void touch(const JsonObject& object, int depth) {
  for (const auto& [key, value] : object.json().items()) {
    require(object.has(key) != value.is_null());
    const bool integer = object.integer(key).ok();
    require(!integer || value.is_number_integer());
    require(object.number(key).ok() == value.is_number());
    require(object.boolean(key).ok() == value.is_boolean());
    require(object.string(key).ok() == value.is_string());
    require(object.integer(key, 1).ok() == (integer || value.is_null()));
    const bool array = value.is_array();
    require(array || !(object.integers(key).ok() || object.numbers(key).ok()));
    require(array || !object.strings(key).ok());
    const auto inner = object.object(key);
    require(inner.ok() == value.is_object());
    if (inner.ok() && depth < 4) touch(*inner, depth + 1);
  }
}

}  // namespace
}  // namespace aerie

AERIE_FUZZ_TARGET(json) {
  using aerie::Json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = aerie::parse_json(text, "fuzz");
  if (!value.ok()) {
    aerie::require(value.status().message().starts_with("fuzz: "));
    return 0;
  }
  aerie::check_equal(*value, Json::parse(text, nullptr, false));
  // Equal in value: "-0" is a signed zero that is written as "0", which is read as an unsigned one.
  aerie::require(aerie::parse_json(value->dump(), "dump").value() == *value);
  const auto object = aerie::JsonObject::view(*value, "fuzz");
  if (object.ok()) aerie::touch(*object, 0);
  return 0;
}

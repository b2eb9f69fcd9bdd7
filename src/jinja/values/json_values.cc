#include "jinja/values/json_values.h"

#include <nlohmann/json.hpp>

namespace aerie::jinja {

using nlohmann::ordered_json;

Value from_json(Runtime& runtime, const ordered_json& json, int nesting) {
  if (!runtime.may_nest(nesting)) return {};
  switch (json.type()) {
    case ordered_json::value_t::null:
      return Value::none();
    case ordered_json::value_t::boolean:
      return Value::of(json.get<bool>());
    case ordered_json::value_t::number_integer:
      return Value::of(json.get<int64_t>());
    case ordered_json::value_t::number_unsigned:
      return Value::of(json.get<uint64_t>());
    case ordered_json::value_t::number_float:
      return Value::of(json.get<double>());
    case ordered_json::value_t::string:
      return runtime.borrow(json.get_ref<const std::string&>());
    case ordered_json::value_t::array: {
      Sequence* list = runtime.sequence();
      for (const auto& item : json) runtime.push(list, from_json(runtime, item, nesting + 1));
      return Value::of(list);
    }
    case ordered_json::value_t::object: {
      Dict* dict = runtime.dict();
      for (const auto& [name, member] : json.get_ref<const ordered_json::object_t&>()) {
        runtime.put(dict, runtime.borrow(name), from_json(runtime, member, nesting + 1));
      }
      return Value::of(dict);
    }
    default:
      return runtime.fail("the variables hold something that JSON cannot express");
  }
}

}  // namespace aerie::jinja

#include "jinja/values/json_values.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "jinja/values/characters.h"
#include "jinja/values/operations.h"
#include "jinja/values/sort.h"

namespace aerie::jinja {
namespace {

using nlohmann::ordered_json;

Expected<Value> from_object(Runtime& runtime, const ordered_json& json, int nesting) {
  Dict* dict = runtime.dict();
  for (const auto& [name, member] : json.get_ref<const ordered_json::object_t&>()) {
    AERIE_ASSIGN_OR_RETURN(const Value value, from_json(runtime, member, nesting + 1));
    AERIE_RETURN_IF_ERROR(runtime.put(dict, runtime.borrow(name), value));
  }
  return Value::of(dict);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style)
      : runtime_(runtime), style_(style), out_(runtime) {}

  Status write(const Value& value, int nesting);
  Expected<Value> result() { return out_.value(); }

 private:
  void write_text(std::string_view text);
  void write_escape(char32_t code);
  void write_line(int nesting);
  Status write_sequence(const Sequence& sequence, int nesting);
  Status write_dict(const Dict& dict, int nesting);
  Status write_key(const Value& key);

  Runtime& runtime_;
  const JsonStyle& style_;
  TextBuilder out_;
};

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_text(value);
}

void JsonWriter::write_escape(char32_t code) {
  switch (code) {
    case '"':
      return out_.add("\\\"");
    case '\\':
      return out_.add("\\\\");
    case '\n':
      return out_.add("\\n");
    case '\r':
      return out_.add("\\r");
    case '\t':
      return out_.add("\\t");
    case '\f':
      return out_.add("\\f");
    case '\b':
      return out_.add("\\b");
    default:
      break;
  }
  const auto unit = [&](uint32_t value) { out_.add(fmt::format("\\u{:04x}", value)); };
  if (code >= 0x10000) {
    unit(0xD800 + ((static_cast<uint32_t>(code) - 0x10000) >> 10));
    unit(0xDC00 + (static_cast<uint32_t>(code) & 0x3FF));
  } else {
    unit(static_cast<uint32_t>(code));
  }
}

void JsonWriter::write_text(std::string_view text) {
  out_.add('"');
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Character character = next_character(text.substr(at));
    const char32_t code = character.code;
    const bool escape =
        code < 0x20 || code == '"' || code == '\\' || (style_.ascii && code >= 0x7F);
    if (escape) {
      out_.add(text.substr(done, at - done));
      write_escape(code);
      done = at + character.length;
    }
    at += character.length;
  }
  out_.add(text.substr(done));
  out_.add('"');
}

void JsonWriter::write_line(int nesting) {
  if (!style_.indent) return;
  out_.add('\n');
  for (int i = 0; i < nesting; ++i) out_.add(*style_.indent);
}

Status JsonWriter::write_sequence(const Sequence& sequence, int nesting) {
  if (sequence.items.empty()) {
    out_.add("[]");
    return {};
  }
  out_.add('[');
  bool first = true;
  for (const Value& item : sequence.items) {
    if (!first) out_.add(style_.item_separator);
    first = false;
    write_line(nesting + 1);
    AERIE_RETURN_IF_ERROR(write(item, nesting + 1));
  }
  write_line(nesting);
  out_.add(']');
  return {};
}

Status JsonWriter::write_key(const Value& key) {
  switch (key.kind) {
    case Kind::kText:
      write_text(key.view());
      return {};
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      out_.add('"');
      AERIE_RETURN_IF_ERROR(write(key, 0));
      out_.add('"');
      return {};
    default:
      return fail(fmt::format("tojson: a key of type '{}'", type_name(key)));
  }
}

Status JsonWriter::write_dict(const Dict& dict, int nesting) {
  if (dict.entries.empty()) {
    out_.add("{}");
    return {};
  }
  std::vector<std::pair<Value, Value>> sorted;
  if (style_.sort_keys) {
    std::vector<SortItem> order;
    for (const auto& [key, value] : dict.entries) order.push_back({{key}, value});
    AERIE_RETURN_IF_ERROR(stable_sort(runtime_, order, false));
    for (const SortItem& item : order) sorted.emplace_back(item.keys[0], item.value);
  }
  out_.add('{');
  bool first = true;
  for (const auto& [key, value] : style_.sort_keys ? sorted : dict.entries) {
    if (!first) out_.add(style_.item_separator);
    first = false;
    write_line(nesting + 1);
    AERIE_RETURN_IF_ERROR(write_key(key));
    out_.add(style_.key_separator);
    AERIE_RETURN_IF_ERROR(write(value, nesting + 1));
  }
  write_line(nesting);
  out_.add('}');
  return {};
}

Status JsonWriter::write(const Value& value, int nesting) {
  if (nesting > runtime_.limits().nesting) return runtime_.too_nested();
  AERIE_RETURN_IF_ERROR(runtime_.spend());
  AERIE_RETURN_IF_ERROR(out_.status());
  switch (value.kind) {
    case Kind::kNone:
      out_.add("null");
      return {};
    case Kind::kBool:
      out_.add(value.boolean ? "true" : "false");
      return {};
    case Kind::kInt:
      out_.add(int_text(value.integer));
      return {};
    case Kind::kFloat:
      out_.add(json_number(value.real));
      return {};
    case Kind::kText:
      write_text(value.view());
      return {};
    case Kind::kDict:
      return write_dict(*value.dict, nesting);
    case Kind::kUndefined:
      return undefined_error(value).with_context("tojson");
    case Kind::kSequence:
      if (value.sequence->flavour == Sequence::Flavour::kList || value.sequence->is_tuple()) {
        return write_sequence(*value.sequence, nesting);
      }
      [[fallthrough]];
    default:
      return fail(fmt::format("tojson: JSON has no values of type '{}'", type_name(value)));
  }
}

}  // namespace

Expected<Value> from_json(Runtime& runtime, const ordered_json& json, int nesting) {
  AERIE_RETURN_IF_ERROR(runtime.spend());
  if (nesting > runtime.limits().nesting) return runtime.too_nested();
  switch (json.type()) {
    case ordered_json::value_t::null:
      return Value::none();
    case ordered_json::value_t::boolean:
      return Value::of(json.get<bool>());
    case ordered_json::value_t::number_integer:
      return Value::of(Int{json.get<int64_t>()});
    case ordered_json::value_t::number_unsigned:
      return Value::of(static_cast<Int>(json.get<uint64_t>()));
    case ordered_json::value_t::number_float:
      return Value::of(json.get<double>());
    case ordered_json::value_t::string:
      return runtime.borrow(json.get_ref<const std::string&>());
    case ordered_json::value_t::array: {
      Sequence* list = runtime.sequence();
      for (const ordered_json& member : json) {
        AERIE_ASSIGN_OR_RETURN(const Value value, from_json(runtime, member, nesting + 1));
        runtime.push(list, value);
      }
      return Value::of(list);
    }
    case ordered_json::value_t::object:
      return from_object(runtime, json, nesting);
    default:
      return fail("the variables hold something that JSON cannot express");
  }
}

Expected<Value> to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  AERIE_RETURN_IF_ERROR(writer.write(value, 0));
  return writer.result();
}

}  // namespace aerie::jinja

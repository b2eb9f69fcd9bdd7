#include "jinja/values/json_values.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

using nlohmann::ordered_json;

std::string json_escape(char32_t code) {
  constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
  const size_t known = code < 0x80 ? kSpecial.find(static_cast<char>(code)) : kSpecial.npos;
  if (known != kSpecial.npos) return {'\\', kLetters[known]};
  const auto number = static_cast<uint32_t>(code);
  if (number < 0x10000) return fmt::format("\\u{:04x}", number);
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((number - 0x10000) >> 10),
                     0xDC00 + (number & 0x3FF));
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style)
      : runtime_(runtime), style_(style), out_(runtime) {}

  void write(const Value& value, int nesting);
  Value result() { return out_.value(); }

 private:
  void write_text(std::string_view text);
  void write_float(double value);
  void write_line(int nesting);
  void write_key(const Value& key);
  // Items between brackets.
  template <typename Items, typename Write>
  void write_items(std::string_view brackets, const Items& items, int nesting, Write write_item);
  void write_dict(const Dict& dict, int nesting);

  Runtime& runtime_;
  const JsonStyle& style_;
  TextBuilder out_;
};

void JsonWriter::write_text(std::string_view text) {
  out_.add('"');
  const auto special = [&](char32_t code) {
    return code < 0x20 || code == '"' || code == '\\' || (style_.ascii && code >= 0x7F);
  };
  add_escaped(out_, text, special, json_escape);
  out_.add('"');
}

void JsonWriter::write_float(double value) {
  if (std::isnan(value)) return out_.add("NaN");
  if (std::isinf(value)) return out_.add(value < 0 ? "-Infinity" : "Infinity");
  out_.add(float_text(value));
}

void JsonWriter::write_line(int nesting) {
  if (!style_.indent) return;
  out_.add('\n');
  out_.repeat(*style_.indent, nesting);
}

template <typename Items, typename Write>
void JsonWriter::write_items(std::string_view brackets, const Items& items, int nesting,
                             Write write_item) {
  if (items.empty()) return out_.add(brackets);
  out_.add(brackets[0]);
  bool first = true;
  for (const auto& item : items) {
    if (!first) out_.add(style_.item_separator);
    first = false;
    write_line(nesting + 1);
    write_item(item);
    if (runtime_.failed()) return;
  }
  write_line(nesting);
  out_.add(brackets[1]);
}

void JsonWriter::write_key(const Value& key) {
  if (key.is_text()) return write_text(key.view());
  if (!key.is_none() && !key.is_number()) {
    runtime_.fail(fmt::format("tojson: a key of type '{}'", type_name(key)));
    return;
  }
  out_.add('"');
  write(key, 0);
  out_.add('"');
}

void JsonWriter::write_dict(const Dict& dict, int nesting) {
  std::vector<Dict::Entry> sorted;
  if (style_.sort_keys) {
    std::vector<SortItem> order;
    for (const auto& [key, value] : dict.entries) order.push_back({{key}, value});
    stable_sort(runtime_, order, false);
    for (const SortItem& item : order) sorted.emplace_back(item.keys[0], item.value);
  }
  const auto& entries = style_.sort_keys ? sorted : dict.entries;
  write_items("{}", entries, nesting, [&](const Dict::Entry& entry) {
    write_key(entry.first);
    out_.add(style_.key_separator);
    write(entry.second, nesting + 1);
  });
}

void JsonWriter::write(const Value& value, int nesting) {
  if (!runtime_.may_nest(nesting)) return;
  switch (value.kind) {
    case Kind::kNone:
      return out_.add("null");
    case Kind::kBool:
      return out_.add(value.boolean ? "true" : "false");
    case Kind::kInt:
      return out_.add(int_text(value.integer));
    case Kind::kFloat:
      return write_float(value.real);
    case Kind::kText:
      return write_text(value.view());
    case Kind::kDict:
      return write_dict(*value.dict, nesting);
    case Kind::kUndefined:
      undefined_error(runtime_, value);
      return runtime_.add_context("tojson");
    default:
      if (value.is_list() || value.is_tuple()) {
        return write_items("[]", value.sequence->items, nesting,
                           [&](const Value& item) { write(item, nesting + 1); });
      }
      runtime_.fail(fmt::format("tojson: JSON has no values of type '{}'", type_name(value)));
  }
}

}  // namespace

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

Value to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value, 0);
  return writer.result();
}

}  // namespace aerie::jinja

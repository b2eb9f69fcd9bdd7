// str(), repr() and JSON.
#include <fmt/format.h>

#include <cmath>

#include "jinja/builtins/native.h"
#include "jinja/syntax/ast.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

// A backslash and a letter for what has one; empty for all else.
std::string letter_escape(char32_t code, std::string_view special, std::string_view letters) {
  const size_t known = code < 0x80 ? special.find(static_cast<char>(code)) : special.npos;
  return known == special.npos ? std::string() : std::string{'\\', letters[known]};
}

std::string python_escape(char32_t code) {
  const auto number = static_cast<uint32_t>(code);
  std::string letter = letter_escape(code, "\n\r\t\\'\"", "nrt\\'\"");
  if (!letter.empty()) return letter;
  if (code < 0x100) return fmt::format("\\x{:02x}", number);
  return code < 0x10000 ? fmt::format("\\u{:04x}", number) : fmt::format("\\U{:08x}", number);
}

std::string json_escape(char32_t code) {
  const auto number = static_cast<uint32_t>(code);
  std::string letter = letter_escape(code, "\"\\\n\r\t\f\b", "\"\\nrtfb");
  if (!letter.empty()) return letter;
  if (code < 0x10000) return fmt::format("\\u{:04x}", number);
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((number - 0x10000) >> 10),
                     0xDC00 + (number & 0x3FF));
}

// repr(), or JSON if there is a style for it.
class Writer {
 public:
  explicit Writer(TextBuilder& out, const JsonStyle* json = nullptr)
      : runtime_(out.runtime()), out_(out), json_(json) {}

  void write(const Value& value, int nesting);

 private:
  void write_float(double value);
  void write_quoted(std::string_view text);
  void write_sequence(const Value& value, int nesting);
  void write_dict(const Dict& dict, int nesting);
  void write_key(const Value& key, int nesting);
  void write_callable(const Callable& callable);
  void write_loop(const Loop& loop) {
    out_.add(fmt::format("<LoopContext {}/{}>", loop.index + 1, loop.items->items.size()));
  }
  // Items between brackets.
  template <typename Items, typename Write>
  void write_items(std::string_view brackets, const Items& items, int nesting, Write write_item);
  void write_line(int nesting);

  Runtime& runtime_;
  TextBuilder& out_;
  const JsonStyle* json_;
};

void Writer::write_float(double value) {
  if (json_ == nullptr || std::isfinite(value)) return out_.add(float_text(value));
  out_.add(std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity");
}

void Writer::write_quoted(std::string_view text) {
  const bool single =
      json_ == nullptr && (text.find('\'') == text.npos || text.find('"') != text.npos);
  const char quote = single ? '\'' : '"';
  const auto special = [&](char32_t code) {
    if (code == '\\' || code == static_cast<char32_t>(quote)) return true;
    if (json_ == nullptr) return !is_printable(code);
    return code < 0x20 || (json_->ascii && code >= 0x7F);
  };
  out_.add(quote);
  add_escaped(out_, text, special, json_ == nullptr ? python_escape : json_escape);
  out_.add(quote);
}

void Writer::write_line(int nesting) {
  if (json_ == nullptr || !json_->indent) return;
  out_.add('\n');
  out_.repeat(*json_->indent, nesting);
}

template <typename Items, typename Write>
void Writer::write_items(std::string_view brackets, const Items& items, int nesting,
                         Write write_item) {
  out_.add(brackets[0]);
  bool first = true;
  for (const auto& item : items) {
    if (!first) out_.add(json_ == nullptr ? ", " : json_->item_separator);
    first = false;
    write_line(nesting + 1);
    write_item(item);
    if (runtime_.failed()) return;
  }
  if (!first) write_line(nesting);
  out_.add(brackets[1]);
}

void Writer::write_sequence(const Value& value, int nesting) {
  const Sequence& sequence = *value.sequence;
  const auto write_item = [&](const Value& item) { write(item, nesting + 1); };
  if (value.is_list()) return write_items("[]", sequence.items, nesting, write_item);
  if (json_ != nullptr && value.is_tuple()) {
    return write_items("[]", sequence.items, nesting, write_item);
  }
  if (json_ != nullptr) {
    runtime_.fail("tojson: JSON has no values of type '{}'", type_name(value));
  } else if (value.is_tuple()) {
    write_items(sequence.items.size() == 1 ? "(," : "()", sequence.items, nesting, write_item);
    if (sequence.items.size() == 1) out_.add(')');
  } else if (value.is_indexable()) {
    out_.add(sequence.label);
  } else if (value.is_generator()) {
    out_.add("<generator object>");
  } else {
    out_.add(fmt::format("{}(", type_name(value)));
    write_items("[]", sequence.items, nesting, write_item);
    out_.add(')');
  }
}

void Writer::write_key(const Value& key, int nesting) {
  if (json_ == nullptr || key.is_text()) return write(key, nesting);
  if (!key.is_none() && !key.is_number()) {
    runtime_.fail("tojson: a key of type '{}'", type_name(key));
    return;
  }
  out_.add('"');
  write(key, nesting);
  out_.add('"');
}

void Writer::write_dict(const Dict& dict, int nesting) {
  std::vector<SortItem> order;
  for (const auto& [key, value] : dict.entries) order.push_back({{key}, value});
  if (json_ != nullptr && json_->sort_keys) stable_sort(runtime_, order, false);
  write_items("{}", order, nesting, [&](const SortItem& item) {
    write_key(item.keys[0], nesting + 1);
    out_.add(json_ == nullptr ? ": " : json_->key_separator);
    write(item.value, nesting + 1);
  });
}

void Writer::write_callable(const Callable& callable) {
  if (callable.macro == nullptr) {
    out_.add("<function");
    if (callable.native != nullptr) out_.add(fmt::format(" {}", callable.native->name));
  } else if (callable.macro->name.empty()) {
    out_.add("<Macro anonymous");
  } else {
    out_.add("<Macro ");
    write_quoted(callable.macro->name);
  }
  out_.add('>');
}

void Writer::write(const Value& value, int nesting) {
  if (!runtime_.may_nest(nesting)) return;
  switch (value.kind) {
    case Kind::kNone:
      return out_.add(json_ == nullptr ? "None" : "null");
    case Kind::kBool:
      if (json_ == nullptr) return out_.add(value.boolean ? "True" : "False");
      return out_.add(value.boolean ? "true" : "false");
    case Kind::kInt:
      return out_.add(int_text(value.integer));
    case Kind::kFloat:
      return write_float(value.real);
    case Kind::kText:
      return write_quoted(value.view());
    case Kind::kSequence:
      return write_sequence(value, nesting);
    case Kind::kDict:
      return write_dict(*value.dict, nesting);
    default:
      break;
  }
  if (json_ != nullptr && value.is_undefined()) {
    undefined_error(runtime_, value);
    return runtime_.add_context("tojson");
  }
  if (json_ != nullptr) {
    runtime_.fail("tojson: JSON has no values of type '{}'", type_name(value));
  } else if (value.is(Kind::kNamespace)) {
    out_.add("<Namespace ");
    write_dict(*value.dict, nesting);
    out_.add('>');
  } else if (value.is(Kind::kCallable)) {
    write_callable(*value.callable);
  } else if (value.is(Kind::kLoop)) {
    write_loop(*value.loop);
  } else {
    out_.add(value.is(Kind::kCycler) ? "<Cycler>" : type_name(value));
  }
}

}  // namespace

void write_repr(TextBuilder& out, const Value& value) {
  Writer(out).write(value, 0);
}

void write_text(TextBuilder& out, const Value& value) {
  if (value.is_text()) {
    out.add(value.view());
  } else if (!value.is_undefined()) {
    write_repr(out, value);
  }
}

Value to_text(Runtime& runtime, const Value& value) {
  if (value.is_text()) return value;
  TextBuilder out(runtime);
  write_text(out, value);
  return out.value();
}

Value to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  TextBuilder out(runtime);
  Writer(out, &style).write(value, 0);
  return out.value();
}

void write_escaped(TextBuilder& out, std::string_view text) {
  constexpr std::string_view kSpecial = "&<>'\"";
  constexpr std::string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  for (const char c : text) {
    const size_t special = kSpecial.find(c);
    out.add(special == kSpecial.npos ? std::string_view(&c, 1) : kEscapes[special]);
  }
}

}  // namespace aerie::jinja

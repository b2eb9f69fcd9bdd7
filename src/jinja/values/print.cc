// str(), repr() and JSON.
#include <fmt/format.h>

#include <cmath>

#include "jinja/builtins/native.h"
#include "jinja/syntax/ast.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

std::string escape_of(char32_t code, bool json) {
  constexpr std::string_view kSpecial = "\"\\\n\r\t'\f\b", kLetters = "\"\\nrt'fb";
  const auto number = static_cast<uint32_t>(code);
  const size_t letter = code < 0x80 ? kSpecial.find(static_cast<char>(code)) : kSpecial.npos;
  // Python has no letters for the last two here.
  if (letter < kSpecial.size() - (json ? 0 : 2)) return {'\\', kLetters[letter]};
  if (!json && code < 0x100) return fmt::format("\\x{:02x}", number);
  if (code < 0x10000) return fmt::format("\\u{:04x}", number);
  if (!json) return fmt::format("\\U{:08x}", number);
  const uint32_t above = number - 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (above >> 10), 0xDC00 + (above & 0x3FF));
}

// repr(), or JSON.
class Writer {
 public:
  Writer(TextBuilder& out, bool json, const JsonStyle& style)
      : runtime_(out.runtime()), out_(out), json_(json), style_(style) {}

  void write(const Value& value, int nesting) {
    if (!runtime_.may_nest(nesting)) return;
    switch (value.kind) {
      case Kind::kNone:
        return out_.add(json_ ? "null" : "None");
      case Kind::kBool:
        if (json_) return out_.add(value.boolean ? "true" : "false");
        return out_.add(value.boolean ? "True" : "False");
      case Kind::kInt:
        return out_.add(fmt::format("{}", value.integer));
      case Kind::kFloat:
        return write_float(value.real);
      case Kind::kText:
        return write_quoted(value.view());
      case Kind::kSequence:
        return write_sequence(value, nesting);
      case Kind::kDict:
        return write_dict(*value.dict, nesting);
      default:
        return json_ ? refuse(value) : write_object(value, nesting);
    }
  }

 private:
  // What is no JSON.
  void refuse(const Value& value) {
    if (!value.is_undefined()) {
      runtime_.fail("tojson: JSON has no values of type '{}'", type_name(value));
    } else if (!runtime_.failed()) {
      undefined_error(runtime_, value);
      runtime_.add_context("tojson");
    }
  }

  void write_object(const Value& value, int nesting) {
    if (value.is(Kind::kNamespace)) {
      out_.add("<Namespace ");
      write_dict(*value.dict, nesting);
      out_.add('>');
    } else if (value.is(Kind::kLoop)) {
      const Loop& loop = *value.loop;
      out_.add(fmt::format("<LoopContext {}/{}>", loop.index + 1, loop.items->items.size()));
    } else if (value.is(Kind::kCallable) && value.callable->macro != nullptr) {
      const std::string& name = value.callable->macro->name;
      out_.add(name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", name));
    } else {
      out_.add(value.is_undefined() ? "Undefined" : fmt::format("<{}>", type_name(value)));
    }
  }

  void write_float(double value) {
    if (!json_ || std::isfinite(value)) return out_.add(float_text(value));
    out_.add(std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity");
  }

  void write_quoted(std::string_view text) {
    const bool single = !json_ && (text.find('\'') == text.npos || text.find('"') != text.npos);
    const char quote = single ? '\'' : '"';
    out_.add(quote);
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
      const Character character = next_character(text.substr(at));
      if (is_special(character.code, quote)) {
        out_.add(text.substr(done, at - done));
        out_.add(escape_of(character.code, json_));
        done = at + character.length;
      }
      at += character.length;
    }
    out_.add(text.substr(done));
    out_.add(quote);
  }

  bool is_special(char32_t code, char quote) const {
    if (code == '\\' || code == static_cast<char32_t>(quote)) return true;
    if (!json_) return !is_printable(code);
    return code < 0x20 || (style_.ascii && code >= 0x7F);
  }

  void write_sequence(const Value& value, int nesting) {
    const Sequence& sequence = *value.sequence;
    const auto write_item = [&](const Value& item) { write(item, nesting + 1); };
    if (value.is_list() || (json_ && value.is_tuple())) {
      write_items("[]", sequence.items, nesting, write_item);
    } else if (json_) {
      refuse(value);
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

  void write_dict(const Dict& dict, int nesting) {
    std::vector<SortItem> order;
    for (const auto& [key, value] : dict.entries) order.push_back({key, value});
    if (style_.sort_keys) stable_sort(runtime_, order, false);
    write_items("{}", order, nesting, [&](const SortItem& item) {
      write_key(item.key, nesting + 1);
      out_.add(style_.key_separator);
      write(item.value, nesting + 1);
    });
  }

  void write_key(const Value& key, int nesting) {
    if (!json_ || key.is_text()) return write(key, nesting);
    if (!key.is_none() && !key.is_number()) {
      runtime_.fail("tojson: a key of type '{}'", type_name(key));
      return;
    }
    out_.add('"');
    write(key, nesting);
    out_.add('"');
  }

  // Items between brackets.
  template <typename Items, typename Write>
  void write_items(std::string_view brackets, const Items& items, int nesting, Write write_item) {
    out_.add(brackets[0]);
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_.add(style_.item_separator);
      first = false;
      write_line(nesting + 1);
      write_item(item);
      if (runtime_.failed()) return;
    }
    if (!first) write_line(nesting);
    out_.add(brackets[1]);
  }

  void write_line(int nesting) {
    if (!style_.indent) return;
    out_.add('\n');
    out_.repeat(*style_.indent, nesting);
  }

  Runtime& runtime_;
  TextBuilder& out_;
  bool json_;
  const JsonStyle& style_;
};

}  // namespace

void write_repr(TextBuilder& out, const Value& value) {
  Writer(out, false, {}).write(value, 0);
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
  Writer(out, true, style).write(value, 0);
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

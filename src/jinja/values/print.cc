// str() and repr().
#include <fmt/format.h>

#include "jinja/builtins/native.h"
#include "jinja/syntax/ast.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

std::string python_escape(char32_t code) {
  constexpr std::string_view kSpecial = "\n\r\t\\'\"", kLetters = "nrt\\'\"";
  const auto number = static_cast<uint32_t>(code);
  const size_t known = code < 0x80 ? kSpecial.find(static_cast<char>(code)) : kSpecial.npos;
  if (known != kSpecial.npos) return {'\\', kLetters[known]};
  if (code < 0x100) return fmt::format("\\x{:02x}", number);
  return code < 0x10000 ? fmt::format("\\u{:04x}", number) : fmt::format("\\U{:08x}", number);
}

void write_quoted(TextBuilder& out, std::string_view text) {
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  out.add(quote);
  add_escaped(
      out, text,
      [quote](char32_t code) {
        return code == '\\' || code == static_cast<char32_t>(quote) || !is_printable(code);
      },
      python_escape);
  out.add(quote);
}

// Items with commas between them.
template <typename Items, typename Write>
void write_items(TextBuilder& out, const Items& items, Write write) {
  bool first = true;
  for (const auto& item : items) {
    if (!first) out.add(", ");
    first = false;
    write(item);
    if (out.runtime().failed()) return;
  }
}

void write_sequence(TextBuilder& out, const Sequence& sequence, int nesting) {
  using Flavour = Sequence::Flavour;
  if (sequence.is_generator()) return out.add("<generator object>");
  if (sequence.flavour == Flavour::kRange) return out.add(sequence.label);
  const bool view = sequence.flavour > Flavour::kRange;
  if (view) out.add(fmt::format("{}(", type_name(sequence.flavour)));
  out.add(sequence.is_tuple() ? '(' : '[');
  write_items(out, sequence.items, [&](const Value& item) { write_repr(out, item, nesting + 1); });
  if (sequence.is_tuple() && sequence.items.size() == 1) out.add(',');
  out.add(sequence.is_tuple() ? ')' : ']');
  if (view) out.add(')');
}

void write_dict(TextBuilder& out, const Dict& dict, int nesting) {
  out.add('{');
  write_items(out, dict.entries, [&](const Dict::Entry& entry) {
    write_repr(out, entry.first, nesting + 1);
    out.add(": ");
    write_repr(out, entry.second, nesting + 1);
  });
  out.add('}');
}

void write_callable(TextBuilder& out, const Callable& callable) {
  if (callable.macro == nullptr) {
    out.add("<function");
    if (callable.native != nullptr) out.add(fmt::format(" {}", callable.native->name));
  } else if (callable.macro->name.empty()) {
    out.add("<Macro anonymous");
  } else {
    out.add("<Macro ");
    write_quoted(out, callable.macro->name);
  }
  out.add('>');
}

}  // namespace

void write_repr(TextBuilder& out, const Value& value, int nesting) {
  if (!out.runtime().may_nest(nesting)) return;
  switch (value.kind) {
    case Kind::kAbsent:
    case Kind::kUndefined:
    case Kind::kNone:
      return out.add(type_name(value.kind));
    case Kind::kBool:
      return out.add(value.boolean ? "True" : "False");
    case Kind::kInt:
      return out.add(int_text(value.integer));
    case Kind::kFloat:
      return out.add(float_text(value.real));
    case Kind::kText:
      return write_quoted(out, value.view());
    case Kind::kSequence:
      return write_sequence(out, *value.sequence, nesting);
    case Kind::kDict:
      return write_dict(out, *value.dict, nesting);
    case Kind::kNamespace:
      out.add("<Namespace ");
      write_dict(out, *value.dict, nesting);
      return out.add('>');
    case Kind::kCallable:
      return write_callable(out, *value.callable);
    case Kind::kLoop:
      return out.add(fmt::format("<LoopContext {}/{}>", value.loop->index + 1,
                                 value.loop->items->items.size()));
    case Kind::kCycler:
      return out.add("<Cycler>");
  }
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

void write_escaped(TextBuilder& out, std::string_view text) {
  constexpr std::string_view kSpecial = "&<>'\"";
  constexpr std::string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  for (const char c : text) {
    const size_t special = kSpecial.find(c);
    out.add(special == kSpecial.npos ? std::string_view(&c, 1) : kEscapes[special]);
  }
}

}  // namespace aerie::jinja

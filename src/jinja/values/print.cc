// str() and repr().
#include <fmt/format.h>

#include <algorithm>

#include "jinja/builtins/native.h"
#include "jinja/syntax/ast.h"
#include "jinja/values/characters.h"
#include "jinja/values/operations.h"

namespace aerie::jinja {
namespace {

void write_escape(TextBuilder& out, Character character, char quote) {
  const char32_t code = character.code;
  switch (code) {
    case '\n':
      return out.add("\\n");
    case '\r':
      return out.add("\\r");
    case '\t':
      return out.add("\\t");
    default:
      break;
  }
  if (code == '\\' || code == static_cast<char32_t>(quote)) {
    out.add('\\');
    out.add(static_cast<char>(code));
  } else if (code < 0x100) {
    out.add(fmt::format("\\x{:02x}", static_cast<uint32_t>(code)));
  } else if (code < 0x10000) {
    out.add(fmt::format("\\u{:04x}", static_cast<uint32_t>(code)));
  } else {
    out.add(fmt::format("\\U{:08x}", static_cast<uint32_t>(code)));
  }
}

void write_quoted(TextBuilder& out, std::string_view text) {
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  out.add(quote);
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Character character = next_character(text.substr(at));
    const char32_t code = character.code;
    const bool plain = code < 0x7F
                           ? code >= 0x20 && code != '\\' && code != static_cast<char32_t>(quote)
                           : is_printable(code);
    if (!plain) {
      out.add(text.substr(done, at - done));
      write_escape(out, character, quote);
      done = at + character.length;
    }
    at += character.length;
  }
  out.add(text.substr(done));
  out.add(quote);
}

struct Brackets {
  std::string_view open, close;
};

Brackets brackets_of(Sequence::Flavour flavour) {
  switch (flavour) {
    case Sequence::Flavour::kTuple:
    case Sequence::Flavour::kGroup:
      return {"(", ")"};
    case Sequence::Flavour::kKeys:
      return {"dict_keys([", "])"};
    case Sequence::Flavour::kValues:
      return {"dict_values([", "])"};
    case Sequence::Flavour::kItems:
      return {"dict_items([", "])"};
    default:
      return {"[", "]"};
  }
}

void write_sequence(TextBuilder& out, Runtime& runtime, const Sequence& sequence, int nesting) {
  if (sequence.is_generator()) return out.add("<generator object>");
  if (sequence.flavour == Sequence::Flavour::kRange) return out.add(sequence.label);
  const Brackets brackets = brackets_of(sequence.flavour);
  out.add(brackets.open);
  bool first = true;
  for (const Value& item : sequence.items) {
    if (!first) out.add(", ");
    first = false;
    write_repr(out, runtime, item, nesting + 1);
    if (out.full()) return;
  }
  if (sequence.is_tuple() && sequence.items.size() == 1) out.add(',');
  out.add(brackets.close);
}

void write_dict(TextBuilder& out, Runtime& runtime, const Dict& dict, int nesting) {
  out.add('{');
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out.add(", ");
    first = false;
    write_repr(out, runtime, key, nesting + 1);
    out.add(": ");
    write_repr(out, runtime, value, nesting + 1);
    if (out.full()) return;
  }
  out.add('}');
}

void write_callable(TextBuilder& out, const Callable& callable) {
  if (callable.what == Callable::What::kMacro) {
    out.add("<Macro ");
    if (callable.macro->name.empty()) {
      out.add("anonymous");
    } else {
      write_quoted(out, callable.macro->name);
    }
    out.add('>');
  } else {
    out.add("<function");
    if (callable.native != nullptr) out.add(fmt::format(" {}", callable.native->name));
    out.add('>');
  }
}

}  // namespace

void write_repr(TextBuilder& out, Runtime& runtime, const Value& value, int nesting) {
  if (nesting > runtime.limits().nesting) return out.stop(runtime.too_nested());
  if (Status status = runtime.spend(); !status.ok()) return out.stop(std::move(status));
  switch (value.kind) {
    case Kind::kAbsent:
    case Kind::kUndefined:
      return out.add("Undefined");
    case Kind::kNone:
      return out.add("None");
    case Kind::kBool:
      return out.add(value.boolean ? "True" : "False");
    case Kind::kInt:
      return out.add(int_text(value.integer));
    case Kind::kFloat:
      return out.add(float_text(value.real));
    case Kind::kText:
      return write_quoted(out, value.view());
    case Kind::kSequence:
      return write_sequence(out, runtime, *value.sequence, nesting);
    case Kind::kDict:
      return write_dict(out, runtime, *value.dict, nesting);
    case Kind::kNamespace:
      out.add("<Namespace ");
      write_dict(out, runtime, *value.dict, nesting);
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

void write_text(TextBuilder& out, Runtime& runtime, const Value& value) {
  if (value.is_text()) {
    out.add(value.view());
  } else if (!value.is_undefined()) {
    write_repr(out, runtime, value);
  }
}

Expected<Value> to_text(Runtime& runtime, const Value& value) {
  if (value.is_text()) return value;
  TextBuilder out(runtime);
  write_text(out, runtime, value);
  return out.value();
}

}  // namespace aerie::jinja

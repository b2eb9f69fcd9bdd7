#include "grammar/json_grammar.h"

#include <fmt/format.h>

#include "grammar/front_ends.h"
#include "grammar/text_cursor.h"

namespace aerie {

using Expr = GrammarBuilder::Expr;

// The rule is there before its body is made, which may call it.
template <typename Make>
Expr JsonGrammar::once(const char* name, const Make& make) {
  const auto [found, added] = made_.try_emplace(name);
  if (!added) return found->second;
  const GrammarBuilder::Rule rule = builder_.add_rule(name);
  const Expr call = builder_.call(rule);
  found->second = call;
  builder_.define(rule, make());
  return call;
}

Expr JsonGrammar::value() {
  return once("value", [&] {
    return builder_.any_of({object(), array(), string(), number(), boolean(), null()});
  });
}

Expr JsonGrammar::object() {
  return once("object", [&] {
    const Expr member = builder_.sequence({string(), colon(), value()});
    const Expr more = builder_.sequence({comma(), member});
    return make_object(builder_.optional(
        builder_.sequence({member, builder_.repeat(more, 0, GrammarBuilder::kUnbounded)})));
  });
}

Expr JsonGrammar::array() {
  return once("array", [&] {
    const Expr more = builder_.sequence({comma(), value()});
    return make_array(builder_.optional(
        builder_.sequence({value(), builder_.repeat(more, 0, GrammarBuilder::kUnbounded)})));
  });
}

Expr JsonGrammar::make_object(Expr members_or_empty) {
  return builder_.sequence({builder_.literal("{"), members_or_empty, builder_.literal("}")});
}

Expr JsonGrammar::make_array(Expr items_or_empty) {
  return builder_.sequence({builder_.literal("["), items_or_empty, builder_.literal("]")});
}

Expr JsonGrammar::comma() {
  return once("comma", [&] {
    return builder_.sequence({builder_.literal(","), builder_.optional(builder_.literal(" "))});
  });
}

Expr JsonGrammar::colon() {
  return once("colon", [&] {
    return builder_.sequence({builder_.literal(":"), builder_.optional(builder_.literal(" "))});
  });
}

Expr JsonGrammar::string() {
  return once("string", [&] {
    return builder_.sequence({builder_.literal("\""),
                              builder_.repeat(character(), 0, GrammarBuilder::kUnbounded),
                              builder_.literal("\"")});
  });
}

Expr JsonGrammar::hex_digit() {
  return builder_.any_of({range('0', '9'), range('A', 'F'), range('a', 'f')});
}

// Of one character: a pair of surrogates or neither.
Expr JsonGrammar::unicode_escape() {
  const Expr hex = hex_digit();
  const Expr d = builder_.any_of({builder_.literal("D"), builder_.literal("d")});
  const Expr not_d = builder_.any_of(
      {range('0', '9'), range('A', 'C'), range('E', 'F'), range('a', 'c'), range('e', 'f')});
  const Expr high = builder_.any_of({range('8', '9'), range('A', 'B'), range('a', 'b')});
  const Expr low = builder_.any_of({range('C', 'F'), range('c', 'f')});
  const Expr basic = builder_.any_of({builder_.sequence({not_d, hex, hex, hex}),
                                      builder_.sequence({d, range('0', '7'), hex, hex})});
  const Expr pair =
      builder_.sequence({d, high, hex, hex, builder_.literal("\\u"), d, low, hex, hex});
  return builder_.any_of({basic, pair});
}

Expr JsonGrammar::character() {
  return once("character", [&] {
    std::vector<Expr> escapes;
    for (const char c : std::string_view("\"\\/bfnrt")) escapes.push_back(range(c, c));
    escapes.push_back(builder_.sequence({builder_.literal("u"), unicode_escape()}));
    return builder_.any_of(
        {builder_.code_points({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}}),
         builder_.sequence({builder_.literal("\\"), builder_.any_of(std::move(escapes))})});
  });
}

Expr JsonGrammar::integer() {
  return once("integer", [&] {
    const Expr digits = builder_.repeat(range('0', '9'), 0, kMaxDigits - 1);
    return builder_.sequence(
        {builder_.optional(builder_.literal("-")),
         builder_.any_of({builder_.literal("0"), builder_.sequence({range('1', '9'), digits})})});
  });
}

Expr JsonGrammar::number() {
  return once("number", [&] {
    const Expr digit = range('0', '9');
    const Expr fraction =
        builder_.sequence({builder_.literal("."), builder_.repeat(digit, 1, kMaxDigits)});
    const Expr exponent =
        builder_.sequence({builder_.any_of({range('E', 'E'), range('e', 'e')}),
                           builder_.optional(builder_.any_of({range('+', '+'), range('-', '-')})),
                           builder_.repeat(digit, 1, 2)});
    return builder_.sequence({integer(), builder_.optional(fraction), builder_.optional(exponent)});
  });
}

Expr JsonGrammar::boolean() {
  return once("boolean", [&] {
    return builder_.any_of({builder_.literal("true"), builder_.literal("false")});
  });
}

Expr JsonGrammar::null() {
  return builder_.literal("null");
}

Expr JsonGrammar::plain_character(const std::vector<CodePointRange>& ranges) {
  std::vector<CodePointRange> direct;
  std::vector<Expr> branches;
  for (const CodePointRange& range : normalized(ranges)) {
    for (char32_t c = range.first; c <= std::min<char32_t>(range.last, 0x5C); ++c) {
      const size_t special = std::u32string_view(U"\"\\\b\f\n\r\t").find(c);
      if (special != std::u32string_view::npos) {
        const char escape[] = {'\\', "\"\\bfnrt"[special], '\0'};
        branches.push_back(builder_.literal(escape));
      } else if (c < 0x20) {
        branches.push_back(builder_.literal(fmt::format("\\u{:04x}", static_cast<uint32_t>(c))));
      } else {
        direct.push_back({c, c});
      }
    }
    if (range.last > 0x5C) direct.push_back({std::max<char32_t>(range.first, 0x5D), range.last});
  }
  branches.push_back(builder_.code_points(direct));
  return builder_.any_of(std::move(branches));
}

Expr JsonGrammar::plain_string(std::string_view text) {
  std::vector<Expr> items = {builder_.literal("\"")};
  TextCursor in{text};
  while (!in.done()) {
    const char32_t c = take_character(in);
    items.push_back(plain_character({{c, c}}));
  }
  items.push_back(builder_.literal("\""));
  return builder_.sequence(std::move(items));
}

Expected<GrammarBuilder::Rule> build_json_object(GrammarBuilder& builder) {
  JsonGrammar json(builder);
  const GrammarBuilder::Rule root = builder.add_rule("root");
  builder.define(root, json.object());
  return root;
}

}  // namespace aerie

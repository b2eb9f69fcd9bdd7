#include "grammar/builtin_rules.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace aerie::grammar {
namespace {

constexpr int kMaxIndent = 20;
constexpr int kMaxIntegerDigits = 18;
constexpr int kMaxFractionDigits = 16;
constexpr int kMaxExponentDigits = 2;

CodePointSet chars(std::string_view text) {
  std::vector<CodePointRange> ranges;
  for (const char c : text) ranges.push_back({static_cast<uint8_t>(c), static_cast<uint8_t>(c)});
  return CodePointSet(ranges);
}

const CodePointSet& digits() {
  static const CodePointSet set({{'0', '9'}});
  return set;
}

// What stands in a JSON string as itself.
const CodePointSet& plain() {
  static const CodePointSet set({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kMaxCodePoint}});
  return set;
}

std::string escaped(uint32_t code_point) {
  switch (code_point) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", code_point);
  }
}

}  // namespace

template <typename Make>
ExprId JsonRules::once(RuleId& rule, std::string_view name, const Make& make) {
  if (rule < 0) {
    rule = rules_.add_rule(std::string(name));
    rules_.set_body(rule, make());
  }
  return rules_.rule(rule);
}

ExprId JsonRules::space() {
  return once(space_, "white space", [&] {
    const ExprId indent = rules_.repeat(rules_.char_class(chars(" \t")), 0, kMaxIndent);
    return rules_.alternatives(
        {rules_.bytes(""), rules_.bytes(" "), rules_.sequence({rules_.bytes("\n"), indent})});
  });
}

ExprId JsonRules::value() {
  return once(value_, "value", [&] {
    return rules_.alternatives({object(), array(), string(), number(), boolean(), null()});
  });
}

ExprId JsonRules::object() {
  return once(object_, "object", [&] {
    const ExprId member = rules_.sequence({string(), rules_.bytes(":"), space(), value()});
    const ExprId more = rules_.sequence({rules_.bytes(","), space(), member});
    const ExprId members = rules_.sequence({space(), member, rules_.repeat(more, 0, kUnbounded)});
    return rules_.sequence(
        {rules_.bytes("{"), rules_.optional(members), space(), rules_.bytes("}")});
  });
}

ExprId JsonRules::array() {
  return once(array_, "array", [&] { return list(value(), 0, kUnbounded); });
}

ExprId JsonRules::list(ExprId item, int min, int max) {
  if (max == 0) return rules_.sequence({rules_.bytes("["), space(), rules_.bytes("]")});
  const ExprId more = rules_.sequence({rules_.bytes(","), space(), item});
  const int more_min = min > 0 ? min - 1 : 0;
  const int more_max = max == kUnbounded ? kUnbounded : max - 1;
  ExprId items = rules_.sequence({space(), item, rules_.repeat(more, more_min, more_max)});
  if (min == 0) items = rules_.optional(items);
  return rules_.sequence({rules_.bytes("["), items, space(), rules_.bytes("]")});
}

ExprId JsonRules::string() {
  return once(string_, "string", [&] {
    return rules_.sequence(
        {rules_.bytes("\""), rules_.repeat(character(), 0, kUnbounded), rules_.bytes("\"")});
  });
}

ExprId JsonRules::integer() {
  return once(integer_, "integer", [&] {
    const ExprId more = rules_.repeat(rules_.char_class(digits()), 0, kMaxIntegerDigits - 1);
    const ExprId first = rules_.char_class(CodePointSet({{'1', '9'}}));
    return rules_.sequence(
        {rules_.optional(rules_.bytes("-")),
         rules_.alternatives({rules_.bytes("0"), rules_.sequence({first, more})})});
  });
}

ExprId JsonRules::number() {
  return once(number_, "number", [&] {
    const ExprId digit = rules_.char_class(digits());
    const ExprId fraction =
        rules_.sequence({rules_.bytes("."), rules_.repeat(digit, 1, kMaxFractionDigits)});
    const ExprId exponent = rules_.sequence({rules_.char_class(chars("eE")),
                                             rules_.optional(rules_.char_class(chars("+-"))),
                                             rules_.repeat(digit, 1, kMaxExponentDigits)});
    return rules_.sequence({integer(), rules_.optional(fraction), rules_.optional(exponent)});
  });
}

ExprId JsonRules::boolean() {
  return once(boolean_, "boolean", [&] {
    return rules_.alternatives({rules_.bytes("true"), rules_.bytes("false")});
  });
}

// Two hexadecimal digits out of these, in either case.
ExprId JsonRules::hex(std::string_view first, std::string_view second) {
  return rules_.sequence({rules_.char_class(chars(first)), rules_.char_class(chars(second))});
}

ExprId JsonRules::character() {
  return once(character_, "character", [&] {
    constexpr std::string_view kHex = "0123456789abcdefABCDEF";
    const ExprId any = hex(kHex, kHex);
    const ExprId scalar = rules_.sequence(
        {rules_.alternatives({hex("0123456789abcefABCEF", kHex), hex("dD", "01234567")}), any});
    const ExprId high = rules_.sequence({hex("dD", "89abAB"), any});
    const ExprId low = rules_.sequence({hex("dD", "cdefCDEF"), any});
    const ExprId pair = rules_.sequence({high, rules_.bytes("\\u"), low});
    const ExprId code = rules_.sequence({rules_.bytes("u"), rules_.alternatives({scalar, pair})});
    const ExprId escape = rules_.sequence(
        {rules_.bytes("\\"), rules_.alternatives({rules_.char_class(chars("\"\\/bfnrt")), code})});
    return rules_.alternatives({rules_.char_class(plain()), escape});
  });
}

ExprId JsonRules::character(const CodePointSet& set) {
  if (set == CodePointSet::all()) return character();
  const CodePointSet special = set.intersected(plain().complement());
  if (special.empty()) return rules_.char_class(set);
  const auto known = characters_.find(set);
  if (known != characters_.end()) return rules_.rule(known->second);
  std::vector<ExprId> ways{rules_.char_class(set.intersected(plain()))};
  for (const CodePointRange& range : special.ranges()) {
    for (uint32_t c = range.first; c <= range.last; ++c) ways.push_back(rules_.bytes(escaped(c)));
  }
  const RuleId rule = rules_.define("character", rules_.alternatives(std::move(ways)));
  characters_.emplace(set, rule);
  return rules_.rule(rule);
}

}  // namespace aerie::grammar

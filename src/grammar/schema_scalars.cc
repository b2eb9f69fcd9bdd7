// Numbers and strings of JSON schemas.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "grammar/regex_syntax.h"
#include "grammar/schema_compiler.h"

namespace aerie {
namespace {

using Expr = GrammarBuilder::Expr;
constexpr int64_t kLargest = 999'999'999'999'999;  // of JsonGrammar::kMaxDigits
constexpr int kBoundedFraction = 6;  // digits, so few that no reader rounds past a bound

Expr digits(GrammarBuilder& builder, char first, char last) {
  return builder.byte_range(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
}

// Numbers of as many digits as both bounds have, which may begin with zeros.
Expr same_length(GrammarBuilder& builder, const std::string& low, const std::string& high) {
  const auto rest = low.size() - 1;
  if (low.empty()) return builder.empty();
  const Expr any =
      builder.repeat(digits(builder, '0', '9'), static_cast<int>(rest), static_cast<int>(rest));
  if (low == std::string(low.size(), '0') && high == std::string(high.size(), '9')) {
    return builder.sequence({digits(builder, '0', '9'), any});
  }
  if (low[0] == high[0]) {
    return builder.sequence(
        {digits(builder, low[0], low[0]), same_length(builder, low.substr(1), high.substr(1))});
  }
  std::vector<Expr> branches = {
      builder.sequence({digits(builder, low[0], low[0]),
                        same_length(builder, low.substr(1), std::string(rest, '9'))}),
      builder.sequence({digits(builder, high[0], high[0]),
                        same_length(builder, std::string(rest, '0'), high.substr(1))})};
  if (low[0] + 1 < high[0]) {
    branches.push_back(builder.sequence(
        {digits(builder, static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)), any}));
  }
  return builder.any_of(std::move(branches));
}

// 0 <= low.
Expr natural_between(GrammarBuilder& builder, int64_t low, int64_t high) {
  std::vector<Expr> branches;
  while (low <= high) {
    const std::string text = std::to_string(low);
    const int64_t longest = std::stoll(std::string(text.size(), '9'));
    const int64_t last = std::min(high, longest);
    branches.push_back(same_length(builder, text, std::to_string(last)));
    low = last + 1;
  }
  return builder.any_of(std::move(branches));
}

Expr integers(GrammarBuilder& builder, int64_t low, int64_t high) {
  low = std::max(low, -kLargest);
  high = std::min(high, kLargest);
  std::vector<Expr> branches;
  if (low < 0 && low <= high) {
    branches.push_back(builder.sequence(
        {builder.literal("-"), natural_between(builder, std::max<int64_t>(1, -high), -low)}));
  }
  if (high >= 0) branches.push_back(natural_between(builder, std::max<int64_t>(0, low), high));
  return builder.any_of(std::move(branches));
}

// Not zero.
Expr positive_fraction(GrammarBuilder& builder) {
  std::vector<Expr> branches;
  for (int zeros = 0; zeros < kBoundedFraction; ++zeros) {
    branches.push_back(builder.sequence(
        {builder.literal(fmt::format(".{}", std::string(static_cast<size_t>(zeros), '0'))),
         digits(builder, '1', '9'),
         builder.repeat(digits(builder, '0', '9'), 0, kBoundedFraction - 1 - zeros)}));
  }
  return builder.any_of(std::move(branches));
}

struct Bounds {
  int64_t low = -kLargest;     // whole numbers from here
  int64_t high = kLargest;     // to here
  int64_t floor = -kLargest;   // what lies above this,
  int64_t ceiling = kLargest;  // and below this
  bool given = false;
};

Expected<Bounds> bounds_of(const SchemaAt& at, bool integer) {
  Bounds out;
  for (const char* keyword : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    if (!at.schema.contains(keyword)) continue;
    const Json& value = at.schema[keyword];
    if (!value.is_number()) return invalid_keyword(at.pointer, keyword, "is not a number");
    const double real = value.get<double>();
    const bool whole = std::trunc(real) == real;
    if (!whole && !integer) {
      return unsupported_keyword(at.pointer, keyword,
                                 "with a fraction, unless the type is \"integer\"");
    }
    out.given = true;
    const double limit = static_cast<double>(kLargest);
    const bool exclusive = keyword[0] == 'e';
    const bool least = std::string_view(keyword).ends_with("inimum");
    const double bounded = std::clamp(real, -limit - 1, limit + 1);
    const auto at_least = static_cast<int64_t>(std::ceil(bounded)) + (whole && exclusive ? 1 : 0);
    const auto at_most = static_cast<int64_t>(std::floor(bounded)) - (whole && exclusive ? 1 : 0);
    if (least) {
      out.low = std::max(out.low, at_least);
      out.floor = std::max(out.floor, static_cast<int64_t>(std::floor(bounded)));
    } else {
      out.high = std::min(out.high, at_most);
      out.ceiling = std::min(out.ceiling, static_cast<int64_t>(std::ceil(bounded)));
    }
  }
  return out;
}

// Lengths of a text in characters; `most` -1 for any.
struct Lengths {
  int64_t least = 0;
  int64_t most = 0;
};

Lengths lengths_of(const RegexNode& node) {
  constexpr int64_t kMany = int64_t{1} << 40;
  Lengths out;
  switch (node.kind) {
    case RegexNode::Kind::kClass:
      return {1, 1};
    case RegexNode::Kind::kSequence:
      for (const RegexNode& item : node.items) {
        const Lengths more = lengths_of(item);
        out.least = std::min(kMany, out.least + more.least);
        out.most = out.most < 0 || more.most < 0 ? -1 : std::min(kMany, out.most + more.most);
      }
      return out;
    case RegexNode::Kind::kAnyOf:
      out.least = kMany;
      for (const RegexNode& item : node.items) {
        const Lengths more = lengths_of(item);
        out.least = std::min(out.least, more.least);
        out.most = out.most < 0 || more.most < 0 ? -1 : std::max(out.most, more.most);
      }
      return out;
    case RegexNode::Kind::kRepeat: {
      const Lengths one = lengths_of(node.items[0]);
      out.least = std::min(kMany, one.least * std::min<int64_t>(node.least, 1 << 20));
      const bool any = one.most < 0 || node.most < 0;
      out.most = any ? (one.most == 0 ? 0 : -1)
                     : std::min(kMany, one.most * std::min<int64_t>(node.most, 1 << 20));
      return out;
    }
  }
  return out;
}

const char* format_pattern(const std::string& format) {
  // Dates without the 29th of February, which only some years have; seconds without leap seconds.
  static const std::string date =
      "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|"
      "30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
  static const std::string time =
      "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):["
      "0-5][0-9])";
  static const std::map<std::string, std::string> patterns = {
      {"date", fmt::format("^{}$", date)},
      {"time", fmt::format("^{}$", time)},
      {"date-time", fmt::format("^{}T{}$", date, time)},
      {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
      {"ipv4",
       "^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-"
       "9]|"
       "[1-9]?[0-9])$"}};
  const auto found = patterns.find(format);
  return found == patterns.end() ? nullptr : found->second.c_str();
}

Expr plain_text(const RegexNode& node, GrammarBuilder& builder, JsonGrammar& json) {
  std::vector<Expr> items;
  for (const RegexNode& item : node.items) items.push_back(plain_text(item, builder, json));
  switch (node.kind) {
    case RegexNode::Kind::kClass:
      return json.plain_character(node.ranges);
    case RegexNode::Kind::kSequence:
      return builder.sequence(std::move(items));
    case RegexNode::Kind::kAnyOf:
      return builder.any_of(std::move(items));
    case RegexNode::Kind::kRepeat:
      return builder.repeat(items[0], node.least, node.most);
  }
  return builder.never();
}

}  // namespace

Expected<Expr> SchemaCompiler::number(const SchemaAt& at, bool integer) {
  if (at.schema.contains("multipleOf")) return unsupported_keyword(at.pointer, "multipleOf", "");
  AERIE_ASSIGN_OR_RETURN(const Bounds bounds, bounds_of(at, integer));
  if (!bounds.given) return integer ? json_.integer() : json_.number();
  const Expr whole = integers(builder_, bounds.low, bounds.high);
  if (integer) return whole;
  const Expr fraction = positive_fraction(builder_);
  std::vector<Expr> branches = {whole};
  // n.f lies between n and n + 1, -n.f between -n - 1 and -n.
  if (bounds.ceiling > 0) {
    branches.push_back(builder_.sequence(
        {integers(builder_, std::max<int64_t>(0, bounds.floor), bounds.ceiling - 1), fraction}));
  }
  if (bounds.floor < 0) {
    const int64_t first = std::max<int64_t>(0, -bounds.ceiling);
    branches.push_back(builder_.sequence(
        {builder_.literal("-"), integers(builder_, first, -bounds.floor - 1), fraction}));
  }
  return builder_.any_of(std::move(branches));
}

Expected<Expr> SchemaCompiler::string(const SchemaAt& at) {
  int lengths[2] = {0, GrammarBuilder::kUnbounded};
  const char* const keywords[2] = {"minLength", "maxLength"};
  for (int i = 0; i < 2; ++i) {
    if (!at.schema.contains(keywords[i])) continue;
    const Json& value = at.schema[keywords[i]];
    if (!has_type(value, "integer") || value.get<double>() < 0) {
      return invalid_keyword(at.pointer, keywords[i], "is not a whole number of 0 or more");
    }
    lengths[i] = static_cast<int>(std::min(value.get<double>(), 1e9));
  }
  if (at.schema.contains("pattern") || at.schema.contains("format")) {
    return pattern(at, lengths[0], lengths[1]);
  }
  if (lengths[0] == 0 && lengths[1] == GrammarBuilder::kUnbounded) return json_.string();
  return builder_.sequence({builder_.literal("\""),
                            builder_.repeat(json_.character(), lengths[0], lengths[1]),
                            builder_.literal("\"")});
}

Expected<Expr> SchemaCompiler::pattern(const SchemaAt& at, int least, int most) {
  const bool formatted = at.schema.contains("format");
  const std::string keyword = formatted ? "format" : "pattern";
  const Json& value = at.schema[keyword];
  if (formatted && at.schema.contains("pattern")) {
    return unsupported_keyword(at.pointer, "pattern", "beside format");
  }
  if (!value.is_string()) return invalid_keyword(at.pointer, keyword, "is not a string");
  std::string text = value.get<std::string>();
  if (formatted) {
    const char* const known = format_pattern(text);
    if (known == nullptr) return unsupported_keyword(at.pointer, "format", "\"" + text + "\"");
    text = known;
  }
  auto branches = parse_regex(text);
  if (!branches.ok())
    return branches.status().with_context("JSON schema, " + at.pointer + "/pattern");
  std::vector<Expr> bodies;
  for (RegexBranch& branch : *branches) {
    RegexNode whole;
    if (!branch.at_start) whole.items.push_back(RegexNode::anything());
    whole.items.push_back(std::move(branch.body));
    if (!branch.at_end) whole.items.push_back(RegexNode::anything());
    const Lengths lengths = lengths_of(whole);
    const bool within =
        lengths.least >= least && (most < 0 || (lengths.most >= 0 && lengths.most <= most));
    if (!within) {
      return unsupported_keyword(at.pointer, keyword,
                                 "beside minLength or maxLength that it does not imply");
    }
    bodies.push_back(plain_text(whole, builder_, json_));
  }
  return builder_.sequence(
      {builder_.literal("\""), builder_.any_of(std::move(bodies)), builder_.literal("\"")});
}

}  // namespace aerie

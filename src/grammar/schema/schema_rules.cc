#include "grammar/schema/schema_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/schema/schema.h"

namespace aerie::grammar {
namespace {

constexpr size_t kMaxRules = 20000;
constexpr size_t kMaxExprs = size_t{1} << 20;
constexpr int64_t kMaxRepeat = 100000;

bool says_nothing(const Shape& shape) {
  const bool numbers = shape.numbers.min || shape.numbers.max || shape.numbers.multiple_of != 1;
  return shape.types == kAllBits && !shape.values && !numbers && !shape.has_string_limits() &&
         shape.arrays.empty() && shape.min_items == 0 && shape.max_items == kUnbounded &&
         shape.unique_items == nullptr && shape.objects.empty() && shape.required.empty() &&
         shape.min_properties == 0 && shape.max_properties == kUnbounded &&
         shape.property_names.empty();
}

}  // namespace

Status SchemaRules::error(StatusCode code, const Shape& shape, std::string_view keyword,
                          std::string_view what) const {
  for (const Json* schema : shape.sources) {
    if (find_key(*schema, keyword) != nullptr) {
      return expander_.document().error(code, *schema, keyword, what);
    }
  }
  return {code, fmt::format("{}: {}", keyword, what)};
}

Expected<RuleId> SchemaRules::root() {
  const Goal goal{&expander_.document().root()};
  const RuleId root = rules_.define("root", value(goal));
  while (!todo_.empty()) {
    const auto [next, rule] = todo_.front();
    todo_.pop_front();
    AERIE_ASSIGN_OR_RETURN(const ExprId body, alternatives(next));
    rules_.set_body(rule, body);
    if (known_.size() > kMaxRules || rules_.expr_count() > kMaxExprs) {
      return Status(StatusCode::kResourceExhausted,
                    fmt::format("the schema needs more than {} rules or {} expressions", kMaxRules,
                                kMaxExprs));
    }
  }
  return root;
}

ExprId SchemaRules::value(const Goal& goal) {
  if (goal.empty()) return json_.value();
  const auto [entry, added] = known_.try_emplace(goal, 0);
  if (added) {
    entry->second = rules_.add_rule(expander_.document().where(*goal[0]));
    todo_.emplace_back(goal, entry->second);
  }
  return rules_.rule(entry->second);
}

Expected<ExprId> SchemaRules::alternatives(const Goal& goal) {
  AERIE_ASSIGN_OR_RETURN(const Shapes shapes, expander_.expand(goal));
  std::vector<ExprId> ways;
  for (const Shape& one : shapes) {
    AERIE_ASSIGN_OR_RETURN(const ExprId way, shape(one));
    ways.push_back(way);
  }
  return rules_.alternatives(std::move(ways));
}

Expected<ExprId> SchemaRules::shape(const Shape& shape) {
  std::vector<ExprId> ways;
  if (shape.values) {
    for (const Json& one : *shape.values) ways.push_back(rules_.bytes(one.dump()));
    return rules_.alternatives(std::move(ways));
  }
  if (says_nothing(shape)) return json_.value();
  if ((shape.types & kNullBit) != 0) ways.push_back(json_.null());
  if ((shape.types & kBooleanBit) != 0) ways.push_back(json_.boolean());
  if ((shape.types & (kIntegerBit | kFractionBit)) != 0) {
    AERIE_ASSIGN_OR_RETURN(const ExprId way, numbers(shape));
    ways.push_back(way);
  }
  if ((shape.types & kStringBit) != 0) {
    AERIE_ASSIGN_OR_RETURN(const ExprId way, string(shape));
    ways.push_back(way);
  }
  if ((shape.types & kArrayBit) != 0) {
    AERIE_ASSIGN_OR_RETURN(const ExprId way, array(shape));
    ways.push_back(way);
  }
  if ((shape.types & kObjectBit) != 0) {
    AERIE_ASSIGN_OR_RETURN(const ExprId way, object(shape));
    ways.push_back(way);
  }
  return rules_.alternatives(std::move(ways));
}

Expected<ExprId> SchemaRules::numbers(const Shape& shape) {
  NumberRange range = shape.numbers;
  // Multiples of integers are integers.
  range.integer = (shape.types & kFractionBit) == 0 || range.multiple_of != 1;
  if (!range.min && !range.max && range.multiple_of == 1) {
    return range.integer ? json_.integer() : json_.number();
  }
  constexpr int64_t kLargestMultiple = 10000;
  if (range.multiple_of > kLargestMultiple) {
    return error(StatusCode::kUnsupported, shape, "multipleOf",
                 "the common multiple is beyond 10000");
  }
  auto expr = number_in_range(range, rules_);
  if (expr.ok()) return expr;
  const char* keyword = "minimum";
  for (const char* other : {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"}) {
    for (const Json* schema : shape.sources) {
      if (find_key(*schema, other) != nullptr) keyword = other;
    }
  }
  return error(expr.status().code(), shape, keyword, expr.status().message());
}

Expected<ExprId> SchemaRules::string(const Shape& shape) {
  if (!shape.has_string_limits()) return json_.string();
  if (!shape.strings.empty()) {
    auto strings = expander_.strings_of(shape);
    if (!strings.ok()) {
      return error(strings.status().code(), shape, "pattern", strings.status().message());
    }
    return strings->json(json_);
  }
  if (shape.min_length > kMaxRepeat || shape.max_length > kMaxRepeat) {
    return error(StatusCode::kResourceExhausted, shape,
                 shape.max_length > kMaxRepeat ? "maxLength" : "minLength",
                 fmt::format("more than {} characters", kMaxRepeat));
  }
  if (shape.max_length != kUnbounded && shape.max_length < shape.min_length) {
    return rules_.nothing();
  }
  const ExprId content = rules_.repeat(json_.character(), static_cast<int>(shape.min_length),
                                       static_cast<int>(shape.max_length));
  return rules_.sequence({rules_.bytes("\""), content, rules_.bytes("\"")});
}

Expected<ExprId> SchemaRules::array(const Shape& shape) {
  if (shape.unique_items != nullptr && (shape.max_items == kUnbounded || shape.max_items > 1)) {
    return error(StatusCode::kUnsupported, shape, "uniqueItems",
                 "it cannot be enforced; leave it out");
  }
  if (shape.min_items > kMaxRepeat || shape.max_items > kMaxRepeat) {
    return error(StatusCode::kResourceExhausted, shape,
                 shape.max_items > kMaxRepeat ? "maxItems" : "minItems",
                 fmt::format("more than {} items", kMaxRepeat));
  }
  if (shape.max_items != kUnbounded && shape.max_items < shape.min_items) return rules_.nothing();
  size_t prefix = 0;
  Goal rest;
  for (const ArrayPart& part : shape.arrays) {
    prefix = std::max(prefix, part.prefix.size());
    add_to(rest, part.rest);
  }
  const auto min = static_cast<int>(shape.min_items);
  const auto max = static_cast<int>(shape.max_items);
  if (prefix == 0) return json_.list(value(rest), min, is_false(rest) && min == 0 ? 0 : max);
  const auto goal_at = [&](size_t place) {
    Goal goal;
    for (const ArrayPart& part : shape.arrays) {
      add_to(goal, place < part.prefix.size() ? part.prefix[place] : part.rest);
    }
    return goal;
  };
  // From the last item to the first.
  const size_t listed = max == kUnbounded ? prefix : std::min(prefix, static_cast<size_t>(max));
  const auto count = static_cast<int>(listed);
  const ExprId more = rules_.sequence({rules_.bytes(","), json_.space(), value(rest)});
  ExprId tail = rules_.repeat(more, std::max(0, min - count),
                              max == kUnbounded ? kUnbounded : std::max(0, max - count));
  for (size_t i = listed; i-- > 0;) {
    const ExprId before =
        i == 0 ? json_.space() : rules_.sequence({rules_.bytes(","), json_.space()});
    tail = rules_.sequence({before, value(goal_at(i)), tail});
    if (static_cast<int>(i) >= min) tail = rules_.optional(tail);
  }
  return rules_.sequence({rules_.bytes("["), tail, json_.space(), rules_.bytes("]")});
}

Expected<RuleId> parse_schema(std::string_view text, RuleSet& rules) {
  AERIE_ASSIGN_OR_RETURN(const SchemaDocument document, SchemaDocument::read(text));
  return SchemaRules(document, rules).root();
}

}  // namespace aerie::grammar

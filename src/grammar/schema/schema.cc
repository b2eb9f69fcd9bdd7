#include "grammar/schema/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "grammar/builtin_rules.h"
#include "grammar/schema/schema_members.h"

namespace aerie::grammar {
namespace {

constexpr size_t kMaxRules = 20000;
constexpr size_t kMaxExprs = size_t{1} << 20;
constexpr int64_t kMaxLength = 100000;

bool says_nothing(const Shape& shape) {
  const bool numbers = shape.numbers.min || shape.numbers.max || shape.numbers.multiple_of != 1;
  return shape.types == kAllBits && !shape.values && !numbers && !shape.has_string_limits() &&
         shape.arrays.empty() && shape.min_items == 0 && shape.max_items == kUnbounded &&
         shape.unique_items == nullptr && shape.objects.empty() && shape.required.empty() &&
         shape.min_properties == 0 && shape.max_properties == kUnbounded &&
         shape.property_names.empty();
}

// Writes one rule for each set of schemas that is met, so that recursive schemas are recursive
// rules.
class SchemaRules {
 public:
  SchemaRules(SchemaDocument& document, RuleSet& rules)
      : document_(document),
        reader_(document, rules.budget()),
        validator_(reader_),
        negation_(document),
        expander_(reader_, validator_, negation_),
        rules_(rules),
        json_(rules),
        members_(reader_, validator_, expander_, json_,
                 [this](const Goal& goal) { return value(goal); }) {}

  Expected<RuleId> root();

 private:
  ExprId value(const Goal& goal);
  Expected<ExprId> alternatives(const Goal& goal);
  Expected<ExprId> shape(const Shape& shape);
  Expected<ExprId> numbers(const Shape& shape);
  Expected<ExprId> string(const Shape& shape);
  Expected<ExprId> array(const Shape& shape);
  Expected<ExprId> unique_items(const Shape& shape);

  const SchemaDocument& document_;
  SchemaReader reader_;
  SchemaValidator validator_;
  SchemaNegation negation_;
  SchemaExpander expander_;
  RuleSet& rules_;
  JsonRules json_;
  MemberRules members_;
  std::map<Goal, RuleId> known_;
  std::deque<std::pair<Goal, RuleId>> todo_;
};

Expected<RuleId> SchemaRules::root() {
  const Goal goal{&document_.root()};
  const RuleId root = rules_.define("root", value(goal));
  while (!todo_.empty()) {
    const auto [next, rule] = todo_.front();
    todo_.pop_front();
    AERIE_ASSIGN_OR_RETURN(const ExprId body, alternatives(next));
    rules_.set_body(rule, body);
    AERIE_RETURN_IF_ERROR(rules_.budget().status());
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
    entry->second = rules_.add_rule(document_.where(*goal[0]));
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
    std::vector<std::string> texts;
    for (const Json& one : *shape.values) texts.push_back(one.dump());
    return rules_.one_of(std::move(texts));
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
    AERIE_ASSIGN_OR_RETURN(const ExprId way, members_.object(shape));
    ways.push_back(way);
  }
  return rules_.alternatives(std::move(ways));
}

Expected<ExprId> SchemaRules::numbers(const Shape& shape) {
  NumberRange range = shape.numbers;
  // Multiples of integers are integers.
  range.integer = (shape.types & kFractionBit) == 0 || range.multiple_of != 1;
  range.fraction = (shape.types & kIntegerBit) == 0;
  if (!range.min && !range.max && range.multiple_of == 1 && !range.fraction) {
    return range.integer ? json_.integer() : json_.number();
  }
  constexpr int64_t kLargestMultiple = 10000;
  if (range.multiple_of > kLargestMultiple) {
    return shape_error(document_, StatusCode::kUnsupported, shape, "multipleOf",
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
  return shape_error(document_, expr.status().code(), shape, keyword, expr.status().message());
}

Expected<ExprId> SchemaRules::string(const Shape& shape) {
  if (!shape.has_string_limits()) return json_.string();
  if (!shape.strings.empty()) {
    auto strings = strings_of(shape, rules_.budget());
    if (!strings.ok()) {
      return shape_error(document_, strings.status().code(), shape, "pattern",
                         strings.status().message());
    }
    return strings->json(json_);
  }
  if (shape.min_length > kMaxLength || shape.max_length > kMaxLength) {
    return shape_error(document_, StatusCode::kResourceExhausted, shape,
                       shape.max_length > kMaxLength ? "maxLength" : "minLength",
                       fmt::format("more than {} characters", kMaxLength));
  }
  if (shape.max_length != kUnbounded && shape.max_length < shape.min_length) {
    return rules_.nothing();
  }
  const ExprId content = rules_.repeat(json_.character(), static_cast<int>(shape.min_length),
                                       static_cast<int>(shape.max_length));
  return rules_.sequence({rules_.bytes("\""), content, rules_.bytes("\"")});
}

// Of listed values: each at most once, in the order of the list.
Expected<ExprId> SchemaRules::unique_items(const Shape& shape) {
  constexpr size_t kMaxValues = 100;
  Goal goal;
  bool prefix = false;
  for (const auto& part : shape.arrays) {
    add_to(goal, part->rest);
    prefix |= !part->prefix.empty();
  }
  AERIE_ASSIGN_OR_RETURN(const Shapes shapes, expander_.expand(goal));
  std::vector<std::string> texts;
  bool listed = !prefix && !goal.empty();
  for (const Shape& one : shapes) {
    listed = listed && one.values.has_value();
    if (!listed) break;
    for (const Json& value : *one.values) {
      // Values that differ in writing alone are equal.
      listed = listed && (value.is_string() || value.is_boolean() || value.is_null());
      std::string text = value.dump();
      if (std::find(texts.begin(), texts.end(), text) == texts.end())
        texts.push_back(std::move(text));
      listed = listed && texts.size() <= kMaxValues;
    }
  }
  if (!listed) {
    return shape_error(document_, StatusCode::kUnsupported, shape, "uniqueItems",
                       "it can be enforced where the items are listed texts alone; leave it out");
  }
  const auto count = static_cast<int64_t>(texts.size());
  const int64_t most = shape.max_items == kUnbounded ? count : std::min(shape.max_items, count);
  if (shape.min_items > most) return rules_.nothing();
  // From the last value to the first: what may follow when so many items stand already.
  std::vector<ExprId> after;
  for (int64_t stand = 0; stand <= most; ++stand) {
    after.push_back(stand >= shape.min_items ? rules_.bytes("") : rules_.nothing());
  }
  for (size_t i = texts.size(); i-- > 0;) {
    std::vector<ExprId> before = after;
    const ExprId value = rules_.bytes(texts[i]);
    for (int64_t stand = 0; stand < most && !rules_.spent(); ++stand) {
      const auto at = static_cast<size_t>(stand);
      const ExprId item = stand == 0 ? rules_.sequence({json_.space(), value})
                                     : rules_.sequence({rules_.bytes(","), json_.space(), value});
      const ExprId both = rules_.alternatives({after[at], rules_.sequence({item, after[at + 1]})});
      before[at] = rules_.rule(rules_.define("items", both));
    }
    after = std::move(before);
  }
  return rules_.sequence({rules_.bytes("["), after[0], json_.space(), rules_.bytes("]")});
}

Expected<ExprId> SchemaRules::array(const Shape& shape) {
  if (shape.unique_items != nullptr && (shape.max_items == kUnbounded || shape.max_items > 1)) {
    return unique_items(shape);
  }
  if (shape.min_items > kMaxLength || shape.max_items > kMaxLength) {
    return shape_error(document_, StatusCode::kResourceExhausted, shape,
                       shape.max_items > kMaxLength ? "maxItems" : "minItems",
                       fmt::format("more than {} items", kMaxLength));
  }
  if (shape.max_items != kUnbounded && shape.max_items < shape.min_items) return rules_.nothing();
  size_t prefix = 0;
  Goal rest;
  for (const auto& part : shape.arrays) {
    prefix = std::max(prefix, part->prefix.size());
    add_to(rest, part->rest);
  }
  const auto min = static_cast<int>(shape.min_items);
  const auto max = static_cast<int>(shape.max_items);
  if (prefix == 0) return json_.list(value(rest), min, is_false(rest) && min == 0 ? 0 : max);
  const auto goal_at = [&](size_t place) {
    Goal goal;
    for (const auto& part : shape.arrays) {
      add_to(goal, place < part->prefix.size() ? part->prefix[place] : part->rest);
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

}  // namespace

Expected<RuleId> parse_schema(std::string_view text, bool strict, RuleSet& rules) {
  AERIE_ASSIGN_OR_RETURN(SchemaDocument document, SchemaDocument::read(text, strict));
  return SchemaRules(document, rules).root();
}

}  // namespace aerie::grammar

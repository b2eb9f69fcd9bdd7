#include "grammar/schema/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "grammar/builtin_rules.h"
#include "grammar/schema/schema_items.h"
#include "grammar/schema/schema_members.h"

namespace aerie::grammar {
namespace {

constexpr size_t kMaxRules = 20000;
constexpr size_t kMaxExprs = size_t{1} << 20;
constexpr int64_t kMaxLength = 100000;

bool says_nothing(const Shape& shape) {
  const bool numbers = shape.numbers.min || shape.numbers.max || shape.numbers.multiple_of != 0;
  return shape.types == kAllBits && !shape.values && !numbers && !shape.has_string_limits() &&
         shape.arrays.empty() && shape.min_items == 0 && shape.max_items == kUnbounded &&
         shape.unique_items == nullptr && shape.contains.empty() && shape.objects.empty() &&
         shape.required.empty() && shape.min_properties == 0 &&
         shape.max_properties == kUnbounded && shape.property_names.empty();
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
                 [this](const Goal& goal) { return value(goal); }),
        items_(document, expander_, negation_, json_,
               [this](const Goal& goal) { return value(goal); }) {}

  Expected<RuleId> root();

 private:
  ExprId value(const Goal& goal);
  Expected<ExprId> alternatives(const Goal& goal);
  Expected<ExprId> shape(const Shape& shape);
  Expected<ExprId> numbers(const Shape& shape);
  Expected<ExprId> string(const Shape& shape);

  const SchemaDocument& document_;
  SchemaReader reader_;
  SchemaValidator validator_;
  SchemaNegation negation_;
  SchemaExpander expander_;
  RuleSet& rules_;
  JsonRules json_;
  MemberRules members_;
  ItemRules items_;
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
    AERIE_ASSIGN_OR_RETURN(const ExprId way, items_.array(shape));
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
  range.integer = (shape.types & kFractionBit) == 0;
  range.fraction = (shape.types & kIntegerBit) == 0;
  if (!range.min && !range.max && range.multiple_of == 0 && !range.fraction) {
    return range.integer ? json_.integer() : json_.number();
  }
  auto expr = number_in_range(range, rules_);
  if (expr.ok()) return expr;
  const char* keyword = "minimum";
  for (const char* other :
       {"exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"}) {
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

}  // namespace

Expected<RuleId> parse_schema(std::string_view text, bool strict, RuleSet& rules) {
  AERIE_ASSIGN_OR_RETURN(SchemaDocument document, SchemaDocument::read(text, strict));
  return SchemaRules(document, rules).root();
}

}  // namespace aerie::grammar

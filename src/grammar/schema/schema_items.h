// Arrays: their items, how many there are, and how many of a kind.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "grammar/builtin_rules.h"
#include "grammar/schema/schema_expander.h"

namespace aerie::grammar {

// What it is given must outlive it.
class ItemRules {
 public:
  // The expression for values of which the schemas hold.
  using ValueOf = std::function<ExprId(const Goal&)>;

  ItemRules(const SchemaDocument& document, SchemaExpander& expander, SchemaNegation& negation,
            JsonRules& json, ValueOf value)
      : document_(document),
        expander_(expander),
        negation_(negation),
        rules_(json.rules()),
        json_(json),
        value_(std::move(value)) {}

  // The arrays of the shape.
  Expected<ExprId> array(const Shape& shape);

 private:
  // Items by which of the "contains" hold for them.
  struct Kind {
    Goal goal;
    std::vector<bool> counted;
  };
  // Where one is: how many items there were and how many of them counted, as far as that matters.
  struct Place {
    int64_t index = 0;
    std::vector<int64_t> counts;
    auto operator<=>(const Place&) const = default;
  };

  ExprId plain_items(const Shape& shape);
  Expected<ExprId> unique_items(const Shape& shape);
  // All values that an item can have, as texts; nothing if they are not known or too many.
  Expected<std::optional<std::vector<std::string>>> listed_values(const Goal& goal);
  Expected<ExprId> counted_items(const Shape& shape, const std::vector<ContainsPart>& contains);
  Expected<std::vector<Kind>> kinds_of(const std::vector<ContainsPart>& contains);
  // What follows the place before it, with an item of the kind; nothing if there is no room.
  std::optional<Place> after(const Place& place, const Kind& kind, const Shape& shape,
                             const std::vector<ContainsPart>& contains) const;

  const SchemaDocument& document_;
  SchemaExpander& expander_;
  SchemaNegation& negation_;
  RuleSet& rules_;
  JsonRules& json_;
  const ValueOf value_;
};

}  // namespace aerie::grammar

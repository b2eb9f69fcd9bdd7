// Objects: the members that schemas list, in their order, then others.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "grammar/builtin_rules.h"
#include "grammar/schema/schema_expander.h"

namespace aerie::grammar {

// What it is given must outlive it.
class MemberRules {
 public:
  // The expression for values of which the schemas hold.
  using ValueOf = std::function<ExprId(const Goal&)>;

  MemberRules(SchemaReader& reader, SchemaValidator& validator, SchemaExpander& expander,
              JsonRules& json, ValueOf value)
      : document_(reader.document()),
        validator_(validator),
        expander_(expander),
        rules_(json.rules()),
        json_(json),
        value_(std::move(value)) {}

  // The objects of the shape.
  Expected<ExprId> object(const Shape& shape);

 private:
  // Member names beside those that are listed, and what their values are.
  struct MoreMembers {
    StringAutomaton names;
    Goal goal;
  };
  // The members of one shape.
  struct Members {
    std::vector<ExprId> listed;  // in order; name, colon and value
    std::vector<bool> required;
    bool has_more = false;
    ExprId more = 0;  // one member beside the listed
    int64_t min = 0;
    int64_t max = kUnbounded;
  };
  // Where one is within the members: what comes next, whether there were any, and how many as far
  // as that matters.
  struct Place {
    size_t next = 0;
    bool any = false;
    int64_t count = 0;
    bool more = false;
    auto operator<=>(const Place&) const = default;
  };

  Expected<std::vector<std::string>> names_of(const Shape& shape) const;
  Expected<std::vector<MoreMembers>> more_members(const Shape& shape,
                                                  const std::vector<std::string>& names);
  Expected<StringAutomaton> names_allowed(const Shape& shape);
  ExprId members(const Members& members, const Place& place, std::map<Place, RuleId>& known);
  ExprId separated(const Place& place, ExprId member);

  const SchemaDocument& document_;
  SchemaValidator& validator_;
  SchemaExpander& expander_;
  RuleSet& rules_;
  JsonRules& json_;
  const ValueOf value_;
};

}  // namespace aerie::grammar

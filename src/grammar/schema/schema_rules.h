// From shapes to rules.
#pragma once

#include <deque>
#include <map>

#include "grammar/builtin_rules.h"
#include "grammar/schema/schema_expand.h"

namespace aerie::grammar {

// Writes one rule for each set of schemas that is met, so that recursive schemas are recursive
// rules.
class SchemaRules {
 public:
  SchemaRules(const SchemaDocument& document, RuleSet& rules)
      : expander_(document), rules_(rules), json_(rules) {}

  Expected<RuleId> root();

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

  ExprId value(const Goal& goal);
  Expected<ExprId> alternatives(const Goal& goal);
  Expected<ExprId> shape(const Shape& shape);
  Expected<ExprId> numbers(const Shape& shape);
  Expected<ExprId> string(const Shape& shape);
  Expected<ExprId> array(const Shape& shape);
  Expected<ExprId> object(const Shape& shape);
  Expected<std::vector<std::string>> names_of(const Shape& shape);
  Expected<std::vector<MoreMembers>> more_members(const Shape& shape,
                                                  const std::vector<std::string>& names);
  Expected<StringAutomaton> names_allowed(const Shape& shape);
  ExprId members(const Members& members, const Place& place, std::map<Place, RuleId>& known);
  ExprId separated(const Place& place, ExprId member);
  Status error(StatusCode code, const Shape& shape, std::string_view keyword,
               std::string_view what) const;

  SchemaExpander expander_;
  RuleSet& rules_;
  JsonRules json_;
  std::map<Goal, RuleId> known_;
  std::deque<std::pair<Goal, RuleId>> todo_;
};

}  // namespace aerie::grammar

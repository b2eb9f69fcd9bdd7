#include "grammar/schema/schema_members.h"

#include <algorithm>
#include <set>

namespace aerie::grammar {
namespace {

constexpr size_t kMaxPatterns = 6;

}  // namespace

// In the schemas' order; those that are required but not described come last.
Expected<std::vector<std::string>> MemberRules::names_of(const Shape& shape) const {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const auto& part : shape.objects) {
    for (const auto& [name, goal] : part->properties) add(name);
  }
  for (const std::string& name : shape.required) add(name);
  constexpr size_t kMaxNames = 2000;
  if (names.size() > kMaxNames) {
    return shape_error(document_, StatusCode::kResourceExhausted, shape, "properties",
                       "more than 2000 properties of one object");
  }
  return names;
}

Expected<StringAutomaton> MemberRules::names_allowed(const Shape& shape) {
  StringAutomaton all = StringAutomaton::all();
  for (const Json* schema : shape.property_names) {
    AERIE_ASSIGN_OR_RETURN(const Shapes shapes, expander_.expand({schema}));
    std::vector<StringAutomaton> sets;
    for (const Shape& one : shapes) {
      if (!one.values && (one.types & kStringBit) == 0) continue;
      AERIE_ASSIGN_OR_RETURN(StringAutomaton set, strings_of(one, rules_.budget()));
      sets.push_back(std::move(set));
    }
    if (sets.size() > 1) {
      return shape_error(document_, StatusCode::kUnsupported, shape, "propertyNames",
                         "names with alternatives cannot be enforced");
    }
    if (sets.empty()) sets.push_back(*StringAutomaton::of_texts({}, rules_.budget()));
    AERIE_ASSIGN_OR_RETURN(all,
                           all.combined(sets[0], StringAutomaton::Product::kBoth, rules_.budget()));
  }
  return all;
}

// Names fall into classes by the patterns that they match.
Expected<std::vector<MemberRules::MoreMembers>> MemberRules::more_members(
    const Shape& shape, const std::vector<std::string>& names) {
  AERIE_ASSIGN_OR_RETURN(StringAutomaton all, names_allowed(shape));
  if (!names.empty()) {
    AERIE_ASSIGN_OR_RETURN(const StringAutomaton listed,
                           StringAutomaton::of_texts(names, rules_.budget()));
    AERIE_ASSIGN_OR_RETURN(
        all, all.combined(listed, StringAutomaton::Product::kFirstOnly, rules_.budget()));
  }
  std::vector<MoreMembers> classes{{std::move(all), {}}};
  std::set<StringSet> patterns;
  for (const auto& part : shape.objects) {
    for (const ObjectPart::Pattern& pattern : part->patterns) patterns.insert(pattern.names);
    if (patterns.size() > kMaxPatterns) {
      return shape_error(document_, StatusCode::kResourceExhausted, shape, "patternProperties",
                         "more than 6 patterns for one object");
    }
    // Each with whether a pattern of this part matched.
    std::vector<std::pair<MoreMembers, bool>> open;
    open.reserve(classes.size());
    for (MoreMembers& one : classes) open.emplace_back(std::move(one), false);
    for (const ObjectPart::Pattern& pattern : part->patterns) {
      std::vector<std::pair<MoreMembers, bool>> next;
      for (const auto& [one, matched] : open) {
        AERIE_ASSIGN_OR_RETURN(
            StringAutomaton with,
            one.names.combined(*pattern.names, StringAutomaton::Product::kBoth, rules_.budget()));
        AERIE_ASSIGN_OR_RETURN(
            StringAutomaton without,
            one.names.combined(*pattern.names, StringAutomaton::Product::kFirstOnly,
                               rules_.budget()));
        Goal goal = one.goal;
        add_to(goal, pattern.goal);
        if (!with.empty()) next.push_back({{std::move(with), std::move(goal)}, true});
        if (!without.empty()) next.push_back({{std::move(without), one.goal}, matched});
      }
      open = std::move(next);
    }
    classes.clear();
    for (auto& [one, matched] : open) {
      if (!matched) add_to(one.goal, part->additional);
      classes.push_back(std::move(one));
    }
  }
  std::erase_if(classes,
                [](const MoreMembers& one) { return is_false(one.goal) || one.names.empty(); });
  return classes;
}

ExprId MemberRules::separated(const Place& place, ExprId member) {
  if (!place.any) return rules_.sequence({json_.space(), member});
  return rules_.sequence({rules_.bytes(","), json_.space(), member});
}

// Of members beside the listed, two may have one name: they count as one towards the least number
// and as two towards the greatest.
ExprId MemberRules::members(const Members& members, const Place& place,
                            std::map<Place, RuleId>& known) {
  const auto [entry, added] = known.try_emplace(place, 0);
  if (!added) return rules_.rule(entry->second);
  if (rules_.spent()) return rules_.nothing();
  const RuleId rule = rules_.add_rule("members");
  entry->second = rule;
  const bool counts = members.min > 0 || members.max != kUnbounded;
  const bool room = members.max == kUnbounded || place.count < members.max;
  std::vector<ExprId> ways;
  if (place.next < members.listed.size()) {
    Place with = place;
    ++with.next;
    Place without = with;
    with.any = true;
    if (counts) ++with.count;
    if (room) {
      ways.push_back(rules_.sequence(
          {separated(place, members.listed[place.next]), this->members(members, with, known)}));
    }
    if (!members.required[place.next]) ways.push_back(this->members(members, without, known));
  } else {
    if (place.count >= members.min) ways.push_back(rules_.bytes(""));
    if (members.has_more && room) {
      Place with = place;
      with.any = true;
      const bool is_counted = members.max != kUnbounded || !place.more;
      // Past the first they say nothing towards the least number.
      if (counts && is_counted && !(place.more && place.count < members.min)) ++with.count;
      with.more = counts;
      ways.push_back(
          rules_.sequence({separated(place, members.more), this->members(members, with, known)}));
    }
  }
  rules_.set_body(rule, rules_.alternatives(std::move(ways)));
  return rules_.rule(rule);
}

Expected<ExprId> MemberRules::object(const Shape& shape) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<std::string> names, names_of(shape));
  Members all;
  all.min = std::max<int64_t>(0, shape.min_properties);
  all.max = shape.max_properties;
  if (all.min <= static_cast<int64_t>(shape.required.size())) all.min = 0;
  for (const std::string& name : names) {
    Goal goal;
    for (const auto& part : shape.objects) add_to(goal, part->goal_of(name));
    AERIE_ASSIGN_OR_RETURN(const bool named, validator_.validate(Json(name), shape.property_names));
    const bool required =
        std::find(shape.required.begin(), shape.required.end(), name) != shape.required.end();
    const bool possible = named && !is_false(goal);
    if (!possible && required) return rules_.nothing();
    if (!possible) continue;
    all.listed.push_back(
        rules_.sequence({rules_.bytes(Json(name).dump() + ":"), json_.space(), value_(goal)}));
    all.required.push_back(required);
  }
  AERIE_ASSIGN_OR_RETURN(const std::vector<MoreMembers> more, more_members(shape, names));
  std::vector<ExprId> ways;
  ways.reserve(more.size());
  bool any = names.empty() && shape.property_names.empty();
  for (const auto& part : shape.objects) any = any && part->patterns.empty();
  for (const MoreMembers& one : more) {
    ways.push_back(rules_.sequence({any ? json_.string() : one.names.json(json_), rules_.bytes(":"),
                                    json_.space(), value_(one.goal)}));
  }
  all.has_more = !ways.empty();
  if (all.has_more) all.more = rules_.alternatives(std::move(ways));
  const int64_t most = static_cast<int64_t>(all.listed.size()) + (all.has_more ? 1 : 0);
  constexpr int64_t kMaxCounted = 1000;
  if (all.min > most || (all.max != kUnbounded && all.max > kMaxCounted && all.has_more)) {
    return shape_error(document_, StatusCode::kUnsupported, shape,
                       all.min > most ? "minProperties" : "maxProperties",
                       "so many names that differ cannot be asked for beside the listed ones");
  }
  std::map<Place, RuleId> known;
  return rules_.sequence(
      {rules_.bytes("{"), members(all, {}, known), json_.space(), rules_.bytes("}")});
}

}  // namespace aerie::grammar

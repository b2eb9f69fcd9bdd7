#include "grammar/schema/schema_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace aerie::grammar {
namespace {

constexpr int64_t kMaxItems = 100000;

size_t prefix_of(const Shape& shape) {
  size_t prefix = 0;
  for (const auto& part : shape.arrays) prefix = std::max(prefix, part->prefix.size());
  return prefix;
}

Goal goal_at(const Shape& shape, size_t place) {
  Goal goal;
  for (const auto& part : shape.arrays) {
    add_to(goal, place < part->prefix.size() ? part->prefix[place] : part->rest);
  }
  return goal;
}

// Texts of the whole numbers of a range, if they are few.
bool add_integers(const NumberRange& range, size_t most, std::vector<std::string>& texts) {
  if (!range.min || !range.max || range.multiple_of != 0) return false;
  Decimal unit = 1;
  for (int i = 0; i < kDecimalPlaces; ++i) unit *= 10;
  const Decimal last = *range.max / unit - (*range.max % unit < 0 ? 1 : 0);
  Decimal at = *range.min / unit + (*range.min % unit > 0 ? 1 : 0);
  if (last - at >= static_cast<Decimal>(most)) return false;
  for (; at <= last; ++at) texts.push_back(std::to_string(static_cast<int64_t>(at)));
  return true;
}

}  // namespace

Expected<std::optional<std::vector<std::string>>> ItemRules::listed_values(const Goal& goal) {
  constexpr size_t kMaxValues = 100;
  AERIE_ASSIGN_OR_RETURN(const Shapes shapes, expander_.expand(goal));
  std::vector<std::string> texts;
  const std::optional<std::vector<std::string>> unknown;
  for (const Shape& one : shapes) {
    std::vector<std::string> more;
    if (one.values) {
      for (const Json& value : *one.values) {
        // Values that differ in writing alone are equal.
        const bool told_apart =
            value.is_string() || value.is_boolean() || value.is_null() || value.is_number_integer();
        if (!told_apart) return unknown;
        more.push_back(value.dump());
      }
    } else {
      constexpr uint8_t kFew = kNullBit | kBooleanBit | kIntegerBit;
      if ((one.types & static_cast<uint8_t>(~kFew)) != 0) return unknown;
      if ((one.types & kNullBit) != 0) more.emplace_back("null");
      if ((one.types & kBooleanBit) != 0) more.insert(more.end(), {"false", "true"});
      if ((one.types & kIntegerBit) != 0 && !add_integers(one.numbers, kMaxValues, more))
        return unknown;
    }
    for (std::string& text : more) {
      if (std::find(texts.begin(), texts.end(), text) == texts.end())
        texts.push_back(std::move(text));
    }
    if (texts.size() > kMaxValues) return unknown;
  }
  return std::optional(std::move(texts));
}

// Each at most once, in the order of the list.
Expected<ExprId> ItemRules::unique_items(const Shape& shape) {
  const Goal goal = goal_at(shape, 0);
  std::optional<std::vector<std::string>> texts;
  if (prefix_of(shape) == 0 && !goal.empty() && shape.contains.empty()) {
    AERIE_ASSIGN_OR_RETURN(texts, listed_values(goal));
  }
  if (!texts) {
    return shape_error(document_, StatusCode::kUnsupported, shape, "uniqueItems",
                       "it can be enforced where the items are listed values alone; leave it out");
  }
  const auto count = static_cast<int64_t>(texts->size());
  const int64_t most = shape.max_items == kUnbounded ? count : std::min(shape.max_items, count);
  if (shape.min_items > most) return rules_.nothing();
  // From the last value to the first: what may follow when so many items stand already.
  std::vector<ExprId> after;
  for (int64_t stand = 0; stand <= most; ++stand) {
    after.push_back(stand >= shape.min_items ? rules_.bytes("") : rules_.nothing());
  }
  for (size_t i = texts->size(); i-- > 0;) {
    std::vector<ExprId> before = after;
    const ExprId value = rules_.bytes((*texts)[i]);
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

Expected<std::vector<ItemRules::Kind>> ItemRules::kinds_of(
    const std::vector<ContainsPart>& contains) {
  std::vector<Kind> kinds(1);
  for (const ContainsPart& part : contains) {
    // Where there may be any number more, what does not count may be anything.
    const Json* others = nullptr;
    if (part.max != kUnbounded) {
      AERIE_ASSIGN_OR_RETURN(others, negation_.negated(*part.schema));
    }
    std::vector<Kind> next;
    for (const Kind& kind : kinds) {
      Kind with = kind;
      add_to(with.goal, {part.schema});
      with.counted.push_back(true);
      next.push_back(std::move(with));
      if (part.max != kUnbounded && others == nullptr) continue;
      Kind without = kind;
      if (others != nullptr) add_to(without.goal, {others});
      without.counted.push_back(false);
      next.push_back(std::move(without));
    }
    kinds = std::move(next);
  }
  return kinds;
}

std::optional<ItemRules::Place> ItemRules::after(const Place& place, const Kind& kind,
                                                 const Shape& shape,
                                                 const std::vector<ContainsPart>& contains) const {
  if (shape.max_items != kUnbounded && place.index >= shape.max_items) return std::nullopt;
  const auto told_apart =
      std::max<int64_t>({1, static_cast<int64_t>(prefix_of(shape)), shape.min_items});
  Place next = place;
  if (shape.max_items != kUnbounded || next.index < told_apart) ++next.index;
  for (size_t i = 0; i < contains.size(); ++i) {
    if (!kind.counted[i]) continue;
    const int64_t limit = contains[i].max == kUnbounded ? contains[i].min : contains[i].max;
    // Where there are enough, an item that may be anything says all that one more would.
    if (next.counts[i] >= limit) return std::nullopt;
    ++next.counts[i];
  }
  return next;
}

Expected<ExprId> ItemRules::counted_items(const Shape& shape,
                                          const std::vector<ContainsPart>& contains) {
  AERIE_ASSIGN_OR_RETURN(const std::vector<Kind> kinds, kinds_of(contains));
  std::map<Place, RuleId> known;
  std::vector<Place> todo;
  const auto rest = [&](const Place& place) {
    const auto [entry, added] = known.try_emplace(place, 0);
    if (added) {
      entry->second = rules_.add_rule("items");
      todo.push_back(place);
    }
    return rules_.rule(entry->second);
  };
  const ExprId all = rest({0, std::vector<int64_t>(contains.size())});
  while (!todo.empty() && !rules_.spent()) {
    const Place place = std::move(todo.back());
    todo.pop_back();
    std::vector<ExprId> ways;
    bool enough = place.index >= shape.min_items;
    for (size_t i = 0; i < contains.size(); ++i)
      enough = enough && place.counts[i] >= contains[i].min;
    if (enough) ways.push_back(rules_.bytes(""));
    for (const Kind& kind : kinds) {
      const std::optional<Place> next = after(place, kind, shape, contains);
      if (!next) continue;
      Goal goal = goal_at(shape, static_cast<size_t>(place.index));
      add_to(goal, kind.goal);
      if (is_false(goal)) continue;
      const ExprId separator = rules_.bytes(place.index == 0 ? "" : ",");
      ways.push_back(rules_.sequence({separator, json_.space(), value_(goal), rest(*next)}));
    }
    rules_.set_body(known.at(place), rules_.alternatives(std::move(ways)));
  }
  return rules_.sequence({rules_.bytes("["), all, json_.space(), rules_.bytes("]")});
}

Expected<ExprId> ItemRules::array(const Shape& shape) {
  if (shape.unique_items != nullptr && (shape.max_items == kUnbounded || shape.max_items > 1)) {
    return unique_items(shape);
  }
  if (shape.min_items > kMaxItems || shape.max_items > kMaxItems) {
    return shape_error(document_, StatusCode::kResourceExhausted, shape,
                       shape.max_items > kMaxItems ? "maxItems" : "minItems",
                       fmt::format("more than {} items", kMaxItems));
  }
  if (shape.max_items != kUnbounded && shape.max_items < shape.min_items) return rules_.nothing();
  std::vector<ContainsPart> contains;
  for (const ContainsPart& part : shape.contains) {
    if (part.max != kUnbounded && part.min > part.max) return rules_.nothing();
    if (part.min > kMaxItems || part.max > kMaxItems) {
      return shape_error(document_, StatusCode::kResourceExhausted, shape, "contains",
                         fmt::format("more than {} items are counted", kMaxItems));
    }
    if (part.min > 0 || part.max != kUnbounded) contains.push_back(part);
  }
  if (contains.empty()) return plain_items(shape);
  constexpr size_t kMaxCounted = 6;
  if (contains.size() > kMaxCounted) {
    return shape_error(document_, StatusCode::kResourceExhausted, shape, "contains",
                       fmt::format("more than {} of them for one array", kMaxCounted));
  }
  return counted_items(shape, contains);
}

ExprId ItemRules::plain_items(const Shape& shape) {
  const size_t prefix = prefix_of(shape);
  const Goal rest = goal_at(shape, prefix);
  const auto min = static_cast<int>(shape.min_items);
  const auto max = static_cast<int>(shape.max_items);
  if (prefix == 0) return json_.list(value_(rest), min, is_false(rest) && min == 0 ? 0 : max);
  // From the last item to the first.
  const size_t listed = max == kUnbounded ? prefix : std::min(prefix, static_cast<size_t>(max));
  const auto count = static_cast<int>(listed);
  const ExprId more = rules_.sequence({rules_.bytes(","), json_.space(), value_(rest)});
  ExprId tail = rules_.repeat(more, std::max(0, min - count),
                              max == kUnbounded ? kUnbounded : std::max(0, max - count));
  for (size_t i = listed; i-- > 0;) {
    const ExprId before =
        i == 0 ? json_.space() : rules_.sequence({rules_.bytes(","), json_.space()});
    tail = rules_.sequence({before, value_(goal_at(shape, i)), tail});
    if (static_cast<int>(i) >= min) tail = rules_.optional(tail);
  }
  return rules_.sequence({rules_.bytes("["), tail, json_.space(), rules_.bytes("]")});
}

}  // namespace aerie::grammar

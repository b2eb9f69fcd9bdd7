// What schemas say together, sorted by the type of value that it is said of.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/automaton/string_automaton.h"
#include "grammar/schema/number_rules.h"
#include "grammar/schema/schema_document.h"

namespace aerie::grammar {

// Schemas that hold at once; none: anything is valid.
using Goal = std::vector<const Json*>;

void add_to(Goal& goal, const Goal& more);
// Whether one of the schemas is `false`.
bool is_false(const Goal& goal);

enum TypeBit : uint8_t {
  kNullBit = 1,
  kBooleanBit = 2,
  kIntegerBit = 4,
  kFractionBit = 8,  // numbers that are no integers
  kStringBit = 16,
  kArrayBit = 32,
  kObjectBit = 64,
  kAllBits = 127,
};

using StringSet = std::shared_ptr<const StringAutomaton>;

struct ArrayPart {
  std::vector<Goal> prefix;
  Goal rest;
  bool evaluates = true;  // for "unevaluatedItems"; what says that something is not valid does not
};

// How many items the schema holds for.
struct ContainsPart {
  const Json* schema = nullptr;
  int64_t min = 1;
  int64_t max = kUnbounded;
  bool evaluates = true;
  bool operator==(const ContainsPart&) const = default;
};

struct ObjectPart {
  struct Pattern {
    StringSet names;
    Goal goal;
  };
  std::vector<std::pair<std::string, Goal>> properties;
  std::vector<Pattern> patterns;
  Goal additional;
  bool evaluates = true;  // as of arrays

  // Whether it says anything of members of this name.
  bool describes(const std::string& name) const;
  Goal goal_of(const std::string& name) const;
};

// A conjunction. Keywords say nothing about values of other types than theirs. What it says follows
// from which schemas were taken together: two of the same sources are the same.
struct Shape {
  uint8_t types = kAllBits;
  // The only values, which are valid by all of `sources`.
  std::optional<std::vector<Json>> values;
  std::vector<const Json*> sources;  // the schemas that were taken together, each once
  bool partial = false;              // what it does not allow may be valid all the same

  NumberRange numbers;  // `integer` is not used

  int64_t min_length = 0;
  int64_t max_length = kUnbounded;
  std::vector<StringSet> strings;  // patterns and formats

  // One of each schema that has any; shared by all shapes that the schema is part of, as the
  // objects are.
  std::vector<std::shared_ptr<const ArrayPart>> arrays;
  int64_t min_items = 0;
  int64_t max_items = kUnbounded;
  const Json* unique_items = nullptr;  // the schema that asks for it
  std::vector<ContainsPart> contains;

  std::vector<std::shared_ptr<const ObjectPart>> objects;
  std::vector<std::string> required;
  int64_t min_properties = 0;
  int64_t max_properties = kUnbounded;
  Goal property_names;

  // About how much memory it takes.
  size_t bytes() const;

  bool has_string_limits() const {
    return min_length > 0 || max_length != kUnbounded || !strings.empty();
  }
};

using Shapes = std::vector<Shape>;

// The schemas of both, each once.
std::vector<const Json*> united_sources(const Shape& a, const Shape& b);

// What both say, of shapes without `values`; nothing if no type is left.
std::optional<Shape> intersection(const Shape& a, const Shape& b);

// The strings that a shape allows, which it has to allow at all.
Expected<StringAutomaton> strings_of(const Shape& shape, Budget& budget);

// A message about a keyword of the schemas that were taken together.
Status shape_error(const SchemaDocument& document, StatusCode code, const Shape& shape,
                   std::string_view keyword, std::string_view what);

}  // namespace aerie::grammar

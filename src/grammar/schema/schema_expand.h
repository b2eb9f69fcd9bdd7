// From schemas to the shapes of what is valid.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/status.h"
#include "grammar/schema/schema_document.h"
#include "grammar/schema/schema_shape.h"

namespace aerie::grammar {

// The document must outlive it. Errors name keyword and place.
class SchemaExpander {
 public:
  explicit SchemaExpander(const SchemaDocument& document) : document_(document) {}

  const SchemaDocument& document() const { return document_; }

  // What is valid is what one of the shapes says; none: nothing is valid.
  Expected<Shapes> expand(const Goal& goal);

  // Whether the value is valid by the schema, all keywords considered.
  Expected<bool> validate(const Json& value, const Json& schema, int depth = 0);
  Expected<bool> validate(const Json& value, const Goal& goal);

  // Whether it is certain that nothing is valid by it.
  Expected<bool> is_impossible(const Shape& shape, int depth = 0);
  // The strings that a shape allows, which it has to allow at all.
  Expected<StringAutomaton> strings_of(const Shape& shape);
  Expected<StringSet> pattern(const Json& schema, std::string_view keyword,
                              const std::string& text);

  // Of a reference to a schema within another.
  Expected<const Json*> resolve(const Json& schema) { return document_.resolve(schema); }

 private:
  Expected<Shapes> expand_schema(const Json& schema);
  Expected<Shapes> expand_object(const Json& schema);
  Expected<Shapes> expand_values(const Json& schema);
  Status check_keywords(const Json& schema) const;
  Expected<Shapes> expand_list(const Json& schema, const char* keyword);
  Expected<Shapes> expand_one_of(const Json& schema, const Shapes& base);
  Expected<Shapes> product(const Json& schema, const Shapes& a, const Shapes& b);
  Expected<std::optional<Shape>> merge(const Shape& a, const Shape& b);
  Expected<bool> validate_combined(const Json& value, const Json& schema, int depth);
  Expected<bool> validate_own(const Json& value, const Shape& shape, int depth);
  Expected<bool> validate_items(const Json& value, const Shape& shape, int depth);
  Expected<bool> validate_members(const Json& value, const Shape& shape, int depth);
  Expected<bool> is_impossible_object(const Shape& shape, int depth);
  Expected<bool> are_disjoint(const Shape& a, const Shape& b);

  // The keywords that say something by themselves, but for "not".
  Expected<Shape> own_shape(const Json& schema);
  Status read_types(const Json& schema, Shape& shape);
  Status read_not(const Json& schema, Shape& shape);
  Status read_numbers(const Json& schema, Shape& shape);
  Status read_strings(const Json& schema, Shape& shape);
  Status read_arrays(const Json& schema, Shape& shape);
  Status read_objects(const Json& schema, Shape& shape);
  Status read_unevaluated(const Json& schema, Shape& shape);
  Expected<int64_t> count(const Json& schema, const char* keyword, int64_t fallback) const;
  Expected<std::optional<Decimal>> bound(const Json& schema, const char* keyword) const;
  Expected<Goal> goal_at(const Json& schema, const char* keyword) const;

  const SchemaDocument& document_;
  std::map<const Json*, Shapes> known_;
  std::set<const Json*> open_;  // that are being expanded
  std::map<std::string, StringSet> patterns_;
};

// A pattern for texts of the format, nothing if it is not known. Some valid texts may be missing.
std::optional<std::string> format_pattern(std::string_view format);

// Equal as JSON Schema has it: whatever the order of members, and 1 is 1.0.
bool json_equal(const Json& a, const Json& b);

}  // namespace aerie::grammar
